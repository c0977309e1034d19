"""Recorders by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vedette_rl.core import Recorder
from vedette_rl.errors import UnknownNameError
from vedette_rl.named import import_by_name, is_import_name
from vedette_rl.recording.csv import CsvRecorder
from vedette_rl.recording.jsonl import JsonlRecorder
from vedette_rl.recording.tensorboard import TensorboardRecorder

BUILT_IN: dict[str, Callable[[Path], Recorder]] = {
    "tensorboard": lambda run: TensorboardRecorder(run / "tensorboard"),
    "csv": lambda run: CsvRecorder(run / "records.csv"),
    "jsonl": lambda run: JsonlRecorder(run / "records.jsonl"),
}


def make_recorders(names: Sequence[str], run: Path) -> list[Recorder]:
    """A recorder each.

    Args:
        names: ``tensorboard``, ``csv``, ``jsonl``, or ``module:Name``, which is made with `run`.
        run: the run's directory.

    Raises:
        UnknownNameError: one is not there, or is no `Recorder`.
        RecordingError: a file cannot be written.
    """
    return [_make(name, run) for name in names]


def _make(name: str, run: Path) -> Recorder:
    if name in BUILT_IN:
        return BUILT_IN[name](run)
    if not is_import_name(name):
        known = ", ".join(BUILT_IN)
        raise UnknownNameError("learner.recorders", name, f"known: {known}, or module:Name")
    own = import_by_name("learner.recorders", name)(run)
    if not isinstance(own, Recorder):
        raise UnknownNameError("learner.recorders", name, "it is no Recorder")
    return own
