"""Checkpoints written beside the training, the newest state first."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from vedette_rl.checkpoint import Checkpoints
from vedette_rl.core import ModelInfo, State
from vedette_rl.errors import CheckpointError
from vedette_services.run.model_map import ModelMapWriter

log = logging.getLogger("vedette.trainer")

_RETRY_S = 15.0
SWITCH_S = 0.0005
"""For `sys.setswitchinterval` of a process that trains beside a saver: with Python's own 5 ms, a
training loop waits so long for the interpreter whenever the saver has it."""
SHARE = 0.04
"""Of a processor, at most, for a write beside the training. A small one would be done in some 15 ms
and take every seventh of them; it is better spread."""


class _Job(NamedTuple):
    """A checkpoint to write."""

    opt_steps: int
    state: State
    meta: dict[str, Any]


class CheckpointWriter:
    """One thread that writes checkpoints; while it writes, a newer state replaces a waiting one.

    A full disk or a read-only directory is said once; the state is tried again after a while, until
    it is written or a newer one takes its place. Writes are spread over time, so that they slow the
    training by little at any moment; once closed, it is in a hurry.

    Args:
        checkpoints: where to.
        retry_s: from a failure to the next try.
    """

    def __init__(self, checkpoints: Checkpoints, *, retry_s: float = _RETRY_S) -> None:
        self._checkpoints, self._retry_s = checkpoints, retry_s
        self._work = threading.Condition()
        self._waiting: _Job | None = None
        self._writing = False
        self._closed = False
        self._failed: _Job | None = None
        self._why = ""  # what failed has failed
        self._used_s = 0.0  # of a processor, by this thread until it last gave way
        self._last_try = False  # what failed was begun once more after the close
        self._thread = threading.Thread(target=self._run, name="saver", daemon=True)
        self._thread.start()

    def save(self, opt_steps: int, state: State, meta: dict[str, Any]) -> None:
        """Have `state` written; it must be a copy that nobody changes."""
        with self._work:
            self._waiting = _Job(opt_steps, state, meta)
            self._work.notify()

    @property
    def busy(self) -> bool:
        """Whether a state waits or is being written; one that failed and is tried later is not."""
        with self._work:
            return self._waiting is not None or self._writing

    def close(self, timeout_s: float) -> str:
        """Write what waits, or failed, once more and end.

        Returns:
            why the last state is not on the disk; "" where it is.
        """
        with self._work:
            self._closed = True
            self._work.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return f"it takes more than {timeout_s:.0f} s"
        return self._why if self._failed is not None else ""

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._write(job)
            with self._work:
                self._writing = False

    def _next(self) -> _Job | None:
        """Wait for a state to write; None when closed and nothing is left."""
        with self._work:
            retry_s = self._retry_s if self._failed is not None else None
            self._work.wait_for(lambda: self._waiting is not None or self._closed, retry_s)
            if self._waiting is None and self._closed and (not self._failed or self._last_try):
                return None
            self._last_try = self._closed and self._waiting is None
            job, self._waiting = self._waiting or self._failed, None
            self._writing = job is not None
            return job

    def _write(self, job: _Job) -> None:
        self._used_s = time.thread_time()
        try:
            self._checkpoints.save(*job, self._throttle)
        except CheckpointError as error:
            if self._failed is None:
                log.warning("%s; training goes on, and it is tried again", error)
            self._failed, self._why = job, error.why
        else:
            if self._failed is not None:
                log.warning("checkpoint %d is written now", job.opt_steps)
            self._failed = None

    def _throttle(self) -> None:
        """Rest until the work since the last time was `SHARE` of the time, or until the close."""
        rest_s = (time.thread_time() - self._used_s) * (1 / SHARE - 1)
        with self._work:
            self._work.wait_for(lambda: self._closed, rest_s)
        self._used_s = time.thread_time()


class BackgroundPublisher:
    """One thread that writes models into their map; a newer one takes the place of one that waits.

    Packing a model and summing its bytes takes several times as long as copying it, which is all
    that the training loop waits for.

    Args:
        models: where to; nobody else writes there.
        epoch: of the learner that makes them.
        tell: called when one is written.
    """

    def __init__(
        self, models: ModelMapWriter, epoch: int, tell: Callable[[], None] = lambda: None
    ) -> None:
        self._models, self._epoch, self._tell = models, epoch, tell
        self._work = threading.Condition()
        self._waiting: ModelInfo | None = None
        self._closed = False
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="models", daemon=True)
        self._thread.start()

    def publish(self, info: ModelInfo) -> None:
        """Have a model written; its arrays must not be written any more.

        Raises:
            Exception: what an earlier one met with.
        """
        self.raise_failure()
        with self._work:
            self._waiting = info
            self._work.notify()

    def raise_failure(self) -> None:
        """Nothing, as long as every model could be written; cheap.

        Raises:
            Exception: what one met with.
        """
        if self._failed is not None:
            raise self._failed

    def close(self, timeout_s: float) -> None:
        """Write what waits and end.

        Raises:
            TimeoutError: that is not done after `timeout_s`.
            Exception: what a model met with.
        """
        with self._work:
            self._closed = True
            self._work.notify()
        self._thread.join(timeout_s)
        self.raise_failure()
        if self._thread.is_alive():
            raise TimeoutError(f"the last model is not written after {timeout_s:g} s")

    def _run(self) -> None:
        try:
            while (info := self._next()) is not None:
                self._models.write(self._epoch, info)
                self._tell()
        except Exception as error:  # noqa: BLE001 - the training's thread is told, and raises it
            self._failed = error

    def _next(self) -> ModelInfo | None:
        """Wait for a model; None when closed and none is left."""
        with self._work:
            self._work.wait_for(lambda: self._waiting is not None or self._closed)
            info, self._waiting = self._waiting, None
            return info
