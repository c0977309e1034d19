"""The certificate of a run: that its learning was executed again, and what was equal.

``vedette verify RUN`` writes it to ``RUN/certificate.json``; the report quotes it. It rests on an
execution and on nothing else: it names the steps, the hashes of the weights, the rows, and the
machines and versions of both times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from vedette_rl.number_format import format_time
from vedette_rl.storage.atomic_files import replace_file
from vedette_rl.storage.regular_files import read_json

CERTIFICATE_FILE = "certificate.json"
FORMAT = 1
_LISTS = ("configs", "changes", "epochs", "not_covered")


@dataclass(frozen=True, slots=True)
class Certificate:
    """What an execution has found.

    Args:
        run: the run's id.
        equal: each state and record of scalars has the hash that it had.
        first, last: the steps that were executed lie behind the first and up to the last.
        states, scalars: hashes that were compared.
        weights: the hash of the agent's state by optimization step, of the states compared.
        acting: the hash of the weights that act and are exported, of the same states.
        epochs: the starts of the trainer whose steps were executed.
        files: checkpoints that were looked at: ``equal``, or what is not.
        not_covered: steps, files and states that this says nothing of, a line each.
        rows: of each replay that grows, the first row and the end of those that were drawn from.
        configs: the hashes of the configurations, as ``journal/`` has them.
        then, now: machines and versions: of the run, and of the execution.
        changes: what of these results may depend on, and differs.
        difference: the first, as a sentence; "" for none.
        executed_s: seconds since 1970.
    """

    run: str
    equal: bool
    first: int
    last: int
    states: int
    scalars: int
    weights: Mapping[int, str]
    rows: Mapping[str, tuple[int, int]]
    configs: tuple[str, ...]
    then: Mapping[str, str]
    now: Mapping[str, str]
    acting: Mapping[int, str] = field(default_factory=dict)
    epochs: tuple[int, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    not_covered: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    difference: str = ""
    executed_s: float = field(default_factory=time.time)
    format: int = FORMAT

    def write(self, path: Path) -> None:
        """Write it as JSON.

        Raises:
            OSError: naming the file.
        """
        replace_file(path, json.dumps(asdict(self), indent=1) + "\n", durable=True)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read it; None where there is none, or a damaged or newer one."""
        try:
            table = read_json(path)
            if table["format"] != FORMAT:
                return None
            known = {name: table[name] for name in cls.__dataclass_fields__ if name in table}
            known["acting"] = {int(step): str(of) for step, of in known.get("acting", {}).items()}
            known["weights"] = {int(step): str(of) for step, of in known["weights"].items()}
            known["rows"] = {name: (int(a), int(b)) for name, (a, b) in known["rows"].items()}
            known |= {name: tuple(known.get(name, ())) for name in _LISTS}
            return cls(**known)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def describe(self, steps_now: int | None = None) -> str:
        """Describe it in a sentence.

        Args:
            steps_now: optimization steps of the run: it may have gone on since.
        """
        when = format_time(self.executed_s)
        of = ""
        if self.epochs:
            plural = "s" if len(self.epochs) > 1 else ""
            of = f" of start{plural} {', '.join(map(str, self.epochs))}"
        where = f"steps {self.first:,} to {self.last:,}{of} were executed again ({when})"
        more = ""
        if self.not_covered:
            more = f"; not covered: {'; '.join(self.not_covered)}"
        if steps_now is not None and steps_now > self.last:
            more += f"; it has {steps_now:,} steps now"
        if not self.equal:
            return f"{where}: {self.difference or 'nothing was compared'}{more}"
        compared = f"{self.states:,} states and {self.scalars:,} records of scalars"
        elsewhere = f", where {'; '.join(self.changes)}" if self.changes else ""
        return f"{where}{elsewhere}: all bits of {compared} are equal{more}"
