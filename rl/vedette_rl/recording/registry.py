"""Recorders by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vedette_rl.core import Recorder
from vedette_rl.errors import UnknownNameError
from vedette_rl.named import is_named, load_named
from vedette_rl.recording.csv import CsvRecorder
from vedette_rl.recording.jsonl import JsonlRecorder
from vedette_rl.recording.tensorboard import TensorboardRecorder

BUILT_IN: dict[str, Callable[[Path], Recorder]] = {
    "tensorboard": lambda run: TensorboardRecorder(run / "tensorboard"),
    "csv": lambda run: CsvRecorder(run / "records.csv"),
    "jsonl": lambda run: JsonlRecorder(run / "records.jsonl"),
}


def check_recorders(names: Sequence[str]) -> None:
    """See that all of them are there; makes none.

    Raises:
        UnknownNameError: one is not.
    """
    for name in names:
        if is_named(name):
            load_named("learner.recorders", name)
        elif name not in BUILT_IN:
            known = ", ".join(BUILT_IN)
            raise UnknownNameError("learner.recorders", name, f"known: {known}, or module:Name")


def make_recorders(names: Sequence[str], run: Path) -> list[Recorder]:
    """A recorder each.

    Args:
        names: ``tensorboard``, ``csv``, ``jsonl``, or ``module:Name``, which is made with `run`.
        run: the run's directory.

    Raises:
        UnknownNameError: one is not there, or is no `Recorder`.
        RecordingError: a file cannot be written.
    """
    check_recorders(names)
    recorders: list[Recorder] = []
    for name in names:
        if name in BUILT_IN:
            recorders.append(BUILT_IN[name](run))
            continue
        own = load_named("learner.recorders", name)(run)
        if not isinstance(own, Recorder):
            raise UnknownNameError("learner.recorders", name, "it is no Recorder")
        recorders.append(own)
    return recorders
