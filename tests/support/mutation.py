"""A fault put into the code in one process, to see whether tests find it."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fault put into the code: `old`, which is there once, becomes `new`."""

    module: str
    old: str
    new: str

    def install(self) -> None:
        """Import the module with the fault; call before anything else imports it."""
        spec = importlib.util.find_spec(self.module)
        assert spec is not None
        source = self.mutate(spec)
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module
        exec(compile(source, str(spec.origin), "exec"), module.__dict__)

    def mutate(self, spec: ModuleSpec) -> str:
        """Return the module's source with the fault."""
        assert spec.origin is not None
        source = Path(spec.origin).read_text()
        assert source.count(self.old) == 1, f"{self.module} has not exactly one {self.old!r}"
        return source.replace(self.old, self.new)
