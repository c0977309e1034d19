"""Threads that write checkpoints and models beside the training; the latest job wins."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from vedette_rl.core import ModelInfo, State
from vedette_rl.device.host_copy import settled
from vedette_rl.errors import CheckpointError
from vedette_rl.storage.checkpoints import Checkpoints, refuse_diverged
from vedette_services.errors import RunMovedError
from vedette_services.run.model_map import ModelMapWriter
from vedette_services.status.status import Checkpoint

log = logging.getLogger("vedette.trainer")

_RETRY_S = 15.0
_MEANWHILE_S = 1.0
SWITCH_S = 0.0005
"""For `sys.setswitchinterval` of a process that trains beside a checkpoint writer: with Python's
default of 5 ms, the training loop waits that long whenever the writer holds the interpreter."""
SHARE = 0.04
"""Share of a processor that a write may take beside the training, so that it is spread over time
and does not slow single optimization steps."""

Job = TypeVar("Job")


class LatestJobThread(Generic[Job]):
    """A thread that does jobs; a newer job replaces one that waits.

    An exception in `work` ends the thread; the owner's next call raises it.

    Args:
        name: the thread's name.
        work: does a job; False: the job failed and is tried again unless a newer one comes.
        retry_s: the time from a failure to the next try.
    """

    def __init__(self, name: str, work: Callable[[Job], bool], *, retry_s: float = 0.0) -> None:
        self._work = work
        self._retry_s = retry_s
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
        """Put a job in place of one that waits."""
        self.check()
        with self._changed:
            self._waiting = job
            self._changed.notify()

    @property
    def busy(self) -> bool:
        """True while a job waits or is worked on; not while a failed one waits for its retry."""
        with self._changed:
            return self._waiting is not None or self._working

    def check(self) -> None:
        """Raise the exception that ended the thread, if any; cheap."""
        if self._error is not None:
            raise self._error

    def rest(self, seconds: float) -> None:
        """Pause in the middle of a job, at most until the close."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def close(self, timeout_s: float, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """Do the job that waits, or retry the one that failed, and end.

        Args:
            meanwhile: called about once a second while that takes its time.

        Returns:
            False if that takes longer than `timeout_s`.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        deadline = time.monotonic() + timeout_s
        while self._thread.is_alive() and (left := deadline - time.monotonic()) > 0.0:
            meanwhile()
            self._thread.join(min(left, _MEANWHILE_S))
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
            job = self._waiting or self._failed
            self._waiting = None
            self._working = True
            return job


class _Checkpoint(NamedTuple):
    """A checkpoint to write."""

    opt_steps: int
    state: State
    meta: dict[str, Any]
    urgent: bool


class CheckpointWriter:
    """Writes checkpoints beside the training; a newer state replaces one that waits.

    A full disk or a read-only directory is logged once, and the state is tried again after
    `retry_s`. Writes take at most `SHARE` of a processor, except after `close`. An agent that has
    diverged is not written: the next call raises an error that says so.

    Args:
        check: raises where the run is lost; one that was moved may come back.
        note: called with the steps and the state before it gets its name on the disk.
        on_written: called with the meta of a checkpoint that is on the disk.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        *,
        check: Callable[[], None] = lambda: None,
        note: Callable[[int, State], None] = lambda opt_steps, state: None,
        on_written: Callable[[Mapping[str, Any]], None] = lambda meta: None,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._on_written = on_written
        self._is_urgent = False
        self._checkpoints = checkpoints
        self._check = check
        self._note = note
        self._why = ""  # the latest state is not on the disk; "" if it is
        self._failures = 0  # in a row
        self._newest = _newest(checkpoints)
        self._used_s = 0.0  # of a processor, by this thread until it last gave way
        self._thread = LatestJobThread("checkpoints", self._write, retry_s=retry_s)

    def save(
        self, opt_steps: int, state: State, meta: dict[str, Any], *, urgent: bool = False
    ) -> None:
        """Write `state` in the background; it must be a copy that is not changed, or copies that
        were begun (`vedette_rl.device.host_copy`).

        Args:
            urgent: training waits for it, so that it is not spread over time.
        """
        self._thread.submit(_Checkpoint(opt_steps, state, meta, urgent))

    @property
    def busy(self) -> bool:
        """True while a state waits or is written; not while a failed one waits for its retry."""
        return self._thread.busy

    def status(self) -> Checkpoint:
        """Return what is on the disk, and why nothing newer is."""
        checkpoint = Checkpoint(failures=self._failures, failing=self._why)
        if self._newest is None:
            return checkpoint
        opt_steps, written_at = self._newest
        return replace(checkpoint, opt_steps=opt_steps, age_s=time.monotonic() - written_at)

    def close(self, timeout_s: float, meanwhile: Callable[[], None] = lambda: None) -> str:
        """Write the state that waits, or retry the one that failed, and end.

        Args:
            meanwhile: as `LatestJobThread.close` has it.

        Returns:
            The reason why the last state is not on the disk; "" if it is.
        """
        if not self._thread.close(timeout_s, meanwhile):
            return f"it takes more than {timeout_s:.0f} s"
        return self._why

    def _write(self, job: _Checkpoint) -> bool:
        self._used_s = time.thread_time()
        self._is_urgent = job.urgent
        try:
            state = settled(job.state)
            refuse_diverged(job.opt_steps, state.get("agent"))
            self._check()
            self._note(job.opt_steps, state)
            self._checkpoints.save(job.opt_steps, state, job.meta, self._throttle)
        except (CheckpointError, RunMovedError) as error:
            if not self._why:
                log.warning("%s; training goes on, and it is tried again", error)
            self._why = error.why
            self._failures += 1
            return False
        self._on_written(job.meta)
        if self._why:
            log.warning("checkpoint %d is written now", job.opt_steps)
        self._why = ""
        self._failures = 0
        self._newest = job.opt_steps, time.monotonic()
        return True

    def _throttle(self) -> None:
        """Pause until the work since the last call is `SHARE` of the time, or until the close."""
        if self._is_urgent:
            return
        self._thread.rest((time.thread_time() - self._used_s) * (1 / SHARE - 1))
        self._used_s = time.thread_time()


def _newest(checkpoints: Checkpoints) -> tuple[int, float] | None:
    """Return the steps of the newest checkpoint, and when it was written by the monotonic clock."""
    if (latest := checkpoints.latest()) is None:
        return None
    age_s = max(0.0, time.time() - latest.stat().st_mtime)
    return int(latest.name), time.monotonic() - age_s


class BackgroundPublisher:
    """Writes models into their map beside the training; a newer one replaces one that waits.

    Packing and digesting a model takes several times as long as copying it, and the training loop
    waits only for the copy.

    Args:
        models: the map's only writer.
        epoch: the epoch of the models.
        on_written: called after each write.
    """

    def __init__(
        self, models: ModelMapWriter, epoch: int, on_written: Callable[[], None] = lambda: None
    ) -> None:
        self._models = models
        self._epoch = epoch
        self._on_written = on_written
        self._thread = LatestJobThread("models", self._write)

    def publish(self, info: ModelInfo, env_steps: int = 0) -> None:
        """Write a model in the background; its arrays must not change any more.

        Raises:
            Exception: of an earlier model that could not be written.
        """
        self._thread.submit((info, env_steps))

    def raise_failure(self) -> None:
        """Raise the exception of a model that could not be written; cheap."""
        self._thread.check()

    def close(self, timeout_s: float) -> None:
        """Write the model that waits and end.

        Raises:
            TimeoutError: it is not written after `timeout_s`.
            Exception: of a model that could not be written.
        """
        if not self._thread.close(timeout_s):
            raise TimeoutError(f"the last model is not written after {timeout_s:g} s")

    def _write(self, job: tuple[ModelInfo, int]) -> bool:
        refuse_diverged(job[0].version, job[0].arrays)
        self._models.write(self._epoch, *job)
        self._on_written()
        return True
