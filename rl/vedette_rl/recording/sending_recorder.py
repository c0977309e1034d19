"""Recorders that send to a service: a thread of their own does it, so that training never waits."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vedette_rl.core import Record
from vedette_rl.recording.file_recorder import Means

log = logging.getLogger("vedette.recording")

KEPT_MAX = 100_000
"""Scalars that are kept while the service does not answer; of more, the oldest are dropped."""
CLOSE_S = 15.0
_SEND_EVERY_S = 2.0
_AGAIN_AFTER_S = 15.0
_SCALARS_PER_SEND = 500


class Scalar(NamedTuple):
    """One value of a curve."""

    name: str
    value: float
    time_s: float  # since 1970
    step: int


class SendingRecorder:
    """A `Recorder` that hands everything to a thread; a subclass sends it from there.

    Values that are not finite are dropped. A failure of the service is logged once, and sending is
    tried again. Nothing is raised, and nothing waits but `close`, for `close_s` at most.

    ::

        class Mine(SendingRecorder): ...

        recorder = Mine("the service at HOST")
        recorder.write({"x": 1.0}, step=3)        # returns at once; in the thread:
                                                  #   open()
                                                  #   send_notes(hparams, texts)
                                                  #   send_scalars([...])    again and again
        recorder.close()                          #   finish("done")

    Args:
        service: the service's name in the log.
        clock: seconds since 1970.
        again_after_s: after a failure.
        close_s: the longest time that `close` waits until everything is sent.
    """

    def __init__(
        self,
        service: str,
        *,
        clock: Callable[[], float] = time.time,
        again_after_s: float = _AGAIN_AFTER_S,
        close_s: float = CLOSE_S,
    ) -> None:
        self._service = service
        self._clock = clock
        self._again_after_s = again_after_s
        self._close_s = close_s
        self._means = Means()
        self._kept: deque[Scalar] = deque(maxlen=KEPT_MAX)
        self._hparams: dict[str, bool | float | str] = {}
        self._texts: dict[str, str] = {}
        self._end: Callable[[], str] = lambda: "done"
        self._left_out = 0
        self._failing = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._sender = threading.Thread(target=self._send, name=service, daemon=True)
        self._sender.start()

    # What a subclass does, in the thread

    def open(self) -> None:
        """Open the run at the service, if that has not been done."""
        raise NotImplementedError

    def send_notes(
        self, hparams: Mapping[str, bool | float | str], texts: Mapping[str, str]
    ) -> None:
        """Send new hyperparameters and texts; one of the two may be empty."""
        raise NotImplementedError

    def send_scalars(self, scalars: Sequence[Scalar]) -> None:
        """Send scalars, in the order in which they were written."""
        raise NotImplementedError

    def finish(self, end: str) -> None:
        """Close the run at the service: nothing follows.

        Args:
            end: how it has ended, as `name_end` has it.
        """
        raise NotImplementedError

    def describe(self, error: Exception) -> str:
        """Describe a failure in one line, for the log."""
        return " ".join(str(error).split()) or type(error).__name__

    # Recorder

    def write(self, record: Record, step: int) -> None:
        """Hand scalars to the thread."""
        now = self._clock()
        with self._lock:
            for name, value in record.items():
                if math.isfinite(value):
                    self._left_out += len(self._kept) == KEPT_MAX
                    self._kept.append(Scalar(name, float(value), now, step))

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name."""
        self._means.store(record)

    def flush(self, step: int) -> None:
        """Hand over the means of the stored scalars and wake the thread; this does not wait."""
        self.write(self._means.pop_means(), step)
        self._wake.set()

    def write_text(self, name: str, text: str) -> None:
        """Hand a text to the thread."""
        with self._lock:
            self._texts[name] = text

    def write_hparams(self, hparams: Mapping[str, bool | float | str]) -> None:
        """Hand hyperparameters to the thread."""
        with self._lock:
            self._hparams.update(hparams)

    def name_end(self, end: Callable[[], str]) -> None:
        """Take what is asked how the run has ended, once the recorder is closed; without it, a
        closed recorder is of a run that is done.

        Args:
            end: returns ``failed``, ``interrupted`` (it was stopped before its end), "" while it
                goes on, or another word where it is done.
        """
        self._end = end

    def close(self) -> None:
        """Send what is left, for a bounded time, and end the thread."""
        self._stop.set()
        self._wake.set()
        self._sender.join(self._close_s)
        left_out = self._left_out + len(self._kept)
        if left_out:
            log.warning("%s: %d scalars were not sent", self._service, left_out)
        elif self._sender.is_alive():
            log.warning("%s: its end of the run is not confirmed", self._service)

    # The thread

    def _send(self) -> None:
        while True:
            stopping = self._stop.is_set()
            try:
                self._send_all(ending=stopping)
                self._log_recovery()
            except Exception as error:  # noqa: BLE001 - of a service's client: it ends no training
                self._log_failure(error)
            if stopping:
                return
            if self._failing:
                self._stop.wait(self._again_after_s)
            else:
                self._wake.wait(_SEND_EVERY_S)
                self._wake.clear()

    def _log_failure(self, error: Exception) -> None:
        if not self._failing:
            why = self.describe(error)
            log.warning("%s: %s; tried again every %g s", self._service, why, self._again_after_s)
        self._failing = True

    def _log_recovery(self) -> None:
        if self._failing:
            log.warning("%s: recording again", self._service)
        self._failing = False

    def _send_all(self, *, ending: bool) -> None:
        self.open()
        self._send_notes()
        while self._kept:
            with self._lock:
                some = [self._kept[k] for k in range(min(_SCALARS_PER_SEND, len(self._kept)))]
            self.send_scalars(some)
            self._remove_sent(some)
        if ending:
            self.finish(self._end())

    def _remove_sent(self, sent: Sequence[Scalar]) -> None:
        """Remove scalars from the left; those dropped while they were sent are not left out."""
        identities = {id(scalar) for scalar in sent}
        dropped = len(sent)
        with self._lock:
            while self._kept and id(self._kept[0]) in identities:
                self._kept.popleft()
                dropped -= 1
            self._left_out -= dropped

    def _send_notes(self) -> None:
        with self._lock:
            hparams, texts = dict(self._hparams), dict(self._texts)
        if hparams or texts:
            self.send_notes(hparams, texts)
        with self._lock:
            self._hparams = {k: v for k, v in self._hparams.items() if k not in hparams}
            self._texts = {k: v for k, v in self._texts.items() if texts.get(k) != v}
