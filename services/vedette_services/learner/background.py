"""Threads beside the training, whose newest job wins: checkpoints, and models for their map."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from vedette_rl.core import ModelInfo, State
from vedette_rl.errors import CheckpointError
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.run.model_map import ModelMapWriter

log = logging.getLogger("vedette.trainer")

_RETRY_S = 15.0
SWITCH_S = 0.0005
"""For `sys.setswitchinterval` of a process that trains beside a checkpoint writer: with Python's
own 5 ms, a training loop waits so long for the interpreter whenever the writer has it."""
SHARE = 0.04
"""Of a processor, at most, for a write beside the training. A small one would be done in some 15 ms
and take every seventh of them; it is better spread."""

Job = TypeVar("Job")


class LatestJobThread(Generic[Job]):
    """One thread that does jobs; a newer job replaces one that waits.

    An exception of `work` ends the thread; the next call of the owner raises it.

    Args:
        name: of the thread.
        work: does a job; False: the job is tried again, until it is done or a newer one comes.
        retry_s: from such a failure to the next try.
    """

    def __init__(self, name: str, work: Callable[[Job], bool], *, retry_s: float = 0.0) -> None:
        self._work, self._retry_s = work, retry_s
        self._changed = threading.Condition()
        self._waiting: Job | None = None
        self._failed: Job | None = None
        self._working = False
        self._closed = False
        self._tried_last = False  # the failed job was begun once more after the close
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Have a job done, in place of one that waits."""
        self.check()
        with self._changed:
            self._waiting = job
            self._changed.notify()

    @property
    def busy(self) -> bool:
        """Whether a job waits or is worked on; one that is tried again later is not."""
        with self._changed:
            return self._waiting is not None or self._working

    def check(self) -> None:
        """Raise the exception that ended the thread, if one did; cheap."""
        if self._error is not None:
            raise self._error

    def rest(self, seconds: float) -> None:
        """Wait in the middle of a job; at most until the close."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def close(self, timeout_s: float) -> bool:
        """Do what waits, try once more what failed, and end; False where that takes longer."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)
        self.check()
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                done = self._work(job)
                with self._changed:
                    self._failed = None if done else job
                    self._working = False
        except Exception as error:  # noqa: BLE001 - raised in the owner's thread, by `check`
            self._error = error

    def _next(self) -> Job | None:
        """Wait for a job; None when closed and nothing is left."""
        with self._changed:
            retry_s = self._retry_s if self._failed is not None else None
            self._changed.wait_for(lambda: self._waiting is not None or self._closed, retry_s)
            if self._waiting is None and self._closed:
                if self._failed is None or self._tried_last:
                    return None
                self._tried_last = True
            job, self._waiting = self._waiting or self._failed, None
            self._working = True
            return job


class _Checkpoint(NamedTuple):
    """A checkpoint to write."""

    opt_steps: int
    state: State
    meta: dict[str, Any]


class CheckpointWriter:
    """Writes checkpoints beside the training; a newer state replaces one that waits.

    A full disk or a read-only directory is logged once; the state is tried again after a while,
    until it is written or a newer one takes its place. Writes are spread over time, so that they
    slow the training by little at any moment; once closed, it hurries.

    Args:
        checkpoints: where to.
        retry_s: from a failure to the next try.
    """

    def __init__(self, checkpoints: Checkpoints, *, retry_s: float = _RETRY_S) -> None:
        self._checkpoints = checkpoints
        self._why = ""  # the newest state is not on the disk; "" where it is
        self._used_s = 0.0  # of a processor, by this thread until it last gave way
        self._thread = LatestJobThread("checkpoints", self._write, retry_s=retry_s)

    def save(self, opt_steps: int, state: State, meta: dict[str, Any]) -> None:
        """Have `state` written; it must be a copy that nobody changes."""
        self._thread.submit(_Checkpoint(opt_steps, state, meta))

    @property
    def busy(self) -> bool:
        """Whether a state waits or is being written; one that failed and is tried later is not."""
        return self._thread.busy

    def close(self, timeout_s: float) -> str:
        """Write what waits, or failed, once more and end.

        Returns:
            why the last state is not on the disk; "" where it is.
        """
        if not self._thread.close(timeout_s):
            return f"it takes more than {timeout_s:.0f} s"
        return self._why

    def _write(self, job: _Checkpoint) -> bool:
        self._used_s = time.thread_time()
        try:
            self._checkpoints.save(*job, self._throttle)
        except CheckpointError as error:
            if not self._why:
                log.warning("%s; training goes on, and it is tried again", error)
            self._why = error.why
            return False
        if self._why:
            log.warning("checkpoint %d is written now", job.opt_steps)
        self._why = ""
        return True

    def _throttle(self) -> None:
        """Rest until the work since the last time was `SHARE` of the time, or until the close."""
        self._thread.rest((time.thread_time() - self._used_s) * (1 / SHARE - 1))
        self._used_s = time.thread_time()


class BackgroundPublisher:
    """Writes models into their map beside the training; a newer one replaces one that waits.

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
        self._thread = LatestJobThread("models", self._write)

    def publish(self, info: ModelInfo) -> None:
        """Have a model written; its arrays must not be written any more.

        Raises:
            Exception: what an earlier one met with.
        """
        self._thread.submit(info)

    def raise_failure(self) -> None:
        """Raise what a model met with that could not be written; cheap."""
        self._thread.check()

    def close(self, timeout_s: float) -> None:
        """Write what waits and end.

        Raises:
            TimeoutError: that is not done after `timeout_s`.
            Exception: what a model met with.
        """
        if not self._thread.close(timeout_s):
            raise TimeoutError(f"the last model is not written after {timeout_s:g} s")

    def _write(self, info: ModelInfo) -> bool:
        self._models.write(self._epoch, info)
        self._tell()
        return True
