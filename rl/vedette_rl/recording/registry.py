"""Recorders by name, several behind one, and one that survives a full disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vedette_rl.core import Record, Recorder
from vedette_rl.core.protocols import implements, missing_members
from vedette_rl.errors import RecordingError, UnknownNameError
from vedette_rl.import_by_name import import_by_name, is_import_name
from vedette_rl.recording.file_recorder import CsvRecorder, JsonlRecorder
from vedette_rl.recording.tensorboard import TensorboardRecorder

log = logging.getLogger("vedette.recording")

BUILT_IN: dict[str, Callable[[Path], Recorder]] = {
    "tensorboard": lambda run: TensorboardRecorder(run / "tensorboard"),
    "csv": lambda run: CsvRecorder(run / "records.csv"),
    "jsonl": lambda run: JsonlRecorder(run / "records.jsonl"),
}


def make_recorders(names: Sequence[str], run: Path) -> list[Recorder]:
    """Make a recorder for each name.

    Args:
        names: ``tensorboard``, ``csv``, ``jsonl``, or ``module:Name``, which is made with `run`.
        run: the run's directory.

    Raises:
        UnknownNameError: one is not there, or is no `Recorder`.
        RecordingError: a file cannot be written.
    """
    made: list[Recorder] = []
    try:
        made.extend(_make(name, run) for name in names)  # those before an error are in it
    except Exception as error:
        close_after(error, TeeRecorder(made))
        raise
    return made


def close_after(error: Exception, recorder: Recorder) -> None:
    """Close a recorder because of an error, which stays the one that is told: what closing raises
    is a note of it."""
    try:
        recorder.close()
    except Exception as other:  # noqa: BLE001 - a recorder of the user raises anything
        note_error(error, other, "when it was closed")


def note_error(error: BaseException, other: Exception, when: str) -> None:
    """Add another error, with its own notes, to the one that is raised, unless it says the same."""
    if str(other) == str(error):
        return
    error.add_note(f"{when}, too: {type(other).__name__}: {other}")
    for note in getattr(other, "__notes__", ()):
        error.add_note(note)


def _make(name: str, run: Path) -> Recorder:
    if name in BUILT_IN:
        return BUILT_IN[name](run)
    if not is_import_name(name):
        known = ", ".join(BUILT_IN)
        raise UnknownNameError("learner.recorders", name, f"known: {known}, or module:Name")
    custom = import_by_name("learner.recorders", name)(run)
    if not implements(custom, Recorder):
        lacks = ", ".join(missing_members(custom, Recorder))
        raise UnknownNameError("learner.recorders", name, f"it is no Recorder: it lacks {lacks}")
    return custom


class _Forwarder:
    """A `Recorder` that passes every call on; a subclass decides to which recorders."""

    def _forward(self, call: Callable[[Recorder], None]) -> None:
        raise NotImplementedError

    def write(self, record: Record, step: int) -> None:
        self._forward(lambda recorder: recorder.write(record, step))

    def store(self, record: Record) -> None:
        self._forward(lambda recorder: recorder.store(record))

    def flush(self, step: int) -> None:
        self._forward(lambda recorder: recorder.flush(step))

    def write_text(self, name: str, text: str) -> None:
        self._forward(lambda recorder: recorder.write_text(name, text))

    def close(self) -> None:
        self._forward(lambda recorder: recorder.close())


class TeeRecorder(_Forwarder):
    """Gives everything to each of several recorders, which it closes; without one, drops it.

    One that fails keeps nothing from the others: the first error is raised once all were called,
    with those of later ones as its notes.
    """

    def __init__(self, recorders: Sequence[Recorder] = ()) -> None:
        self._recorders = tuple(recorders)

    def _forward(self, call: Callable[[Recorder], None]) -> None:
        first: Exception | None = None
        for recorder in self._recorders:
            try:
                call(recorder)
            except Exception as error:  # noqa: BLE001 - a recorder of the user raises anything
                if first is None:
                    first = error
                else:
                    note_error(first, error, "another recorder failed")
        if first is not None:
            raise first


class SurvivingRecorder(_Forwarder):
    """Gives everything to a recorder; one that fails is replaced a while later.

    Training continues meanwhile, and the records in between are dropped. The failure is logged
    once, and the recovery too. A new recorder is made because the old one's file ends in half a
    record, and readers stop there.

    Args:
        make: opens a recorder.
        clock: seconds.
        reopen_after_s: after a failure, the next recorder is opened this much later.
    """

    def __init__(
        self,
        make: Callable[[], Recorder],
        *,
        clock: Callable[[], float] = time.monotonic,
        reopen_after_s: float = 30.0,
    ) -> None:
        self._make = make
        self._clock = clock
        self._reopen_after_s = reopen_after_s
        self._recorder: Recorder | None = None
        self._open_at = clock()
        self._failing = False

    def close(self) -> None:
        if self._recorder is not None:
            super().close()
        self._recorder = None

    def _forward(self, call: Callable[[Recorder], None]) -> None:
        if self._recorder is None and self._clock() < self._open_at:
            return
        try:
            if self._recorder is None:
                self._recorder = self._make()
            call(self._recorder)
        except RecordingError as error:
            self._drop_failed(error)
        else:
            if self._failing:
                log.warning("recording again")
            self._failing = False

    def _drop_failed(self, error: RecordingError) -> None:
        if self._recorder is not None:
            failed = self._recorder
            self._recorder = None
            close_after(error, failed)  # mostly the same failure: its buffer is not empty
        self._open_at = self._clock() + self._reopen_after_s
        if not self._failing:
            said = "; ".join([str(error), *getattr(error, "__notes__", ())])
            log.warning("%s; training goes on, and recording is tried again", said)
        self._failing = True
