"""A fault put into the code in one process, to see whether tests find it."""

from __future__ import annotations
import __future__

import importlib.util
import inspect
import sys
import textwrap
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest


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


@dataclass(frozen=True, slots=True)
class FunctionMutation:
    """A fault put into one function of this process, until the test ends.

    Args:
        owner: the class or module that has it.
        name: the function's name there.
        old, new: what stands there once, and the fault in its place.
    """

    owner: Any
    name: str
    old: str
    new: str = "pass"

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the fault in the function's place."""
        function = vars(self.owner)[self.name]
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{self.name} has not exactly one {self.old!r}"
        flags = __future__.annotations.compiler_flag
        code = compile(source.replace(self.old, self.new), self.name, "exec", flags=flags)
        made: dict[str, Any] = {}
        exec(code, function.__globals__, made)
        monkeypatch.setattr(self.owner, self.name, made[self.name])

    def __str__(self) -> str:
        return f"{getattr(self.owner, '__qualname__', self.owner.__name__)}.{self.name}: {self.old}"
