"""The supervisor's side of the snapshot: no start answers anybody before it is in there.

::

    keeper = SnapshotKeeper(spec)
    keeper.begin(stop)                  # before gateway and trainer: waits for a generation
    keeper.check_epoch(epoch)           # before the trainer begins one
    while serving: keeper.watch()
    keeper.end()                        # once the gateway has ended: the last generation
"""

from __future__ import annotations

import logging
import subprocess
import time

from vedette_rl.replay.commits import last_commit
from vedette_rl.replay.frame_ring import open_writer
from vedette_services.errors import (
    SnapshotAwayError,
    SnapshotTakenError,
    StartRefusedError,
    StoppedWaitingError,
    describe_exit,
)
from vedette_services.host.processes import (
    StopSignals,
    WakeupEvent,
    end_children,
    pause,
    python_module,
    spawn,
    wait_all,
)
from vedette_services.run.directory import LearnerSpec
from vedette_services.run.replay_layout import replay_directory, replay_layout
from vedette_services.run.replay_starts import ReplayStarts, mark_start
from vedette_services.run.snapshot_directory import snapshot_root
from vedette_services.status.records import SnapshotProgress, StatusRecordReader

log = logging.getLogger("vedette.learner")

_POLL_S = 0.1
_ANSWER_S = 30.0  # for a directory to answer, before it counts as away
_END_S = 60.0  # for the last generation
_RESTART_S = 5.0
_SAY_S = 10.0


class SnapshotKeeper:
    """Starts the snapshot process, restarts it when it dies, and says what it has found.

    Args:
        spec: of the run, of which `clear_status_records` has removed what an earlier start called
            safe.
    """

    def __init__(self, spec: LearnerSpec) -> None:
        self._spec = spec
        root = snapshot_root(spec.config)
        assert root is not None, "else there is none to keep"
        self._root = root
        self._replay = replay_directory(spec.config, spec.run.root)
        self._stop = WakeupEvent()
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._record = StatusRecordReader(spec.run.snapshot_map, SnapshotProgress)

    def begin(self, stop: StopSignals) -> None:
        """Mark this start in the replay, and wait until it is in the snapshot.

        While the directory cannot be reached, the start goes on under an epoch that was reserved.

        Raises:
            SnapshotTakenError: the replay is no descendant of the newest generation.
            SnapshotAwayError: the directory was never reached.
            StoppedWaitingError: a stop was requested.
        """
        self._sync_replay()
        starts = mark_start(self._replay, last_commit(self._replay).inserted)
        began = time.monotonic()
        say_at = began + _SAY_S
        self._spawn()
        while (found := self._record.read()).state != "written":
            self.watch()
            now = time.monotonic()
            is_away = found.state == "away" or now - began > _ANSWER_S
            if found.state == "away" and not starts.reserved:
                raise SnapshotAwayError(self._root, found.why)
            if is_away and self._next_epoch <= starts.reserved:
                log.warning("%s cannot be reached: starting without it", self._root)
                return
            if now >= say_at:
                say_at += _SAY_S
                why = found.why or "it is being copied"
                log.warning("waiting until this start is in %s: %s", self._root, why)
            if stop:
                raise StoppedWaitingError(f"stopped while waiting for {self._root}")
            pause(stop, _POLL_S)
        if self._root.stat().st_dev == self._replay.stat().st_dev:
            log.warning("%s is on the disk of the replay: both are lost with it", self._root)

    def check_epoch(self, epoch: int) -> None:
        """Check that a trainer may begin this epoch: that no start from the snapshot takes it.

        Raises:
            SnapshotAwayError: it is not reserved.
        """
        if epoch > ReplayStarts.read(self._replay).reserved:
            raise SnapshotAwayError(self._root, f"epoch {epoch} is not reserved in it")

    def watch(self) -> None:
        """Start the process again where it has died.

        Raises:
            SnapshotTakenError: another learner has taken the snapshot.
        """
        found = self._record.read()
        if found.state == "taken":
            raise SnapshotTakenError(self._root, found.why)
        process = self._process
        if process is None or process.poll() is None:
            if process is None and time.monotonic() - self._started >= _RESTART_S:
                self._spawn()
            return
        log.warning("the snapshot's process died (%s)", describe_exit(process.returncode))
        self._process = None

    def end(self) -> None:
        """Have the last generation written, and end the process."""
        self._stop.set()
        if self._process is not None and wait_all([self._process], _END_S):
            log.warning("the last rows are not in %s: it does not answer", self._root)
        elif self._record.read().state == "away":
            log.warning("the last rows are not in %s: %s", self._root, self._record.read().why)
        self.close()

    def close(self) -> None:
        """End the process as it is."""
        if self._process is not None:
            end_children([self._process], term_s=0.0)
            self._process = None
        if self._stop.fileno() >= 0:
            self._stop.close()

    @property
    def _next_epoch(self) -> int:
        return self._spec.run.identity().epoch + 1

    def _sync_replay(self) -> None:
        """Have all rows synced, and the sync recorded; a new run's replay is made."""
        config = self._spec.config
        layout = replay_layout(config, self._spec.spaces)
        open_writer(
            self._replay,
            layout.stored,
            config.replay.capacity,
            run_id=self._spec.run_id,
            guard=layout.guard,
            keep=layout.keep,
            shared=layout.shared,
        ).close()

    def _spawn(self) -> None:
        self._started = time.monotonic()
        arguments = [str(self._spec.run.root), self._stop.argument]
        module = python_module("vedette_services.learner.snapshot.process", *arguments)
        try:
            self._process = spawn(module, name="the snapshot", pass_fds=self._stop.descriptors)
        except StartRefusedError as error:
            log.warning("%s", error)
