"""A recorder that survives a full disk, so that training goes on without curves."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

from vedette_rl.core import Record, Recorder
from vedette_rl.errors import RecordingError

log = logging.getLogger("vedette.recording")

_REOPEN_AFTER_S = 30.0


class SurvivingRecorder:
    """Gives everything to a recorder; one that fails is replaced a while later.

    Records in between are dropped. The failure is logged once, and the recovery too. The recorder
    is made anew because the old one's file ends in half a record, and readers stop there.

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
        reopen_after_s: float = _REOPEN_AFTER_S,
    ) -> None:
        self._make, self._clock, self._reopen_after_s = make, clock, reopen_after_s
        self._recorder: Recorder | None = None
        self._open_at = clock()
        self._failing = False

    def write(self, record: Record, step: int) -> None:
        """Write scalars now."""
        self._try(lambda recorder: recorder.write(record, step))

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name."""
        self._try(lambda recorder: recorder.store(record))

    def flush(self, step: int) -> None:
        """Write what was stored, and push everything written so far out to the disk."""
        self._try(lambda recorder: recorder.flush(step))

    def write_text(self, name: str, text: str) -> None:
        """Write a text."""
        self._try(lambda recorder: recorder.write_text(name, text))

    def close(self) -> None:
        """Flush and close."""
        if self._recorder is not None:
            self._try(lambda recorder: recorder.close())
        self._recorder = None

    def _try(self, work: Callable[[Recorder], None]) -> None:
        if self._recorder is None and self._clock() < self._open_at:
            return
        try:
            if self._recorder is None:
                self._recorder = self._make()
            work(self._recorder)
        except RecordingError as error:
            self._failed(error)
        else:
            if self._failing:
                log.warning("recording again")
            self._failing = False

    def _failed(self, error: RecordingError) -> None:
        if self._recorder is not None:
            with contextlib.suppress(RecordingError):  # the same failure: its buffer is not empty
                self._recorder.close()
            self._recorder = None
        self._open_at = self._clock() + self._reopen_after_s
        if not self._failing:
            log.warning("%s; training goes on, and recording is tried again", error)
        self._failing = True
