"""The snapshot process copies the run to another disk, generation after generation.

It is a process of its own, since a mount that does not answer holds who asks it, for ever perhaps.
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from vedette_rl.replay.commits import STAMP_MAX_BYTES
from vedette_rl.storage.latest_value import LatestValueWriter
from vedette_rl.storage.system import wait_readable
from vedette_services.errors import SnapshotFormatError, SnapshotTakenError
from vedette_services.host.exit_report import report_exit
from vedette_services.host.logs import set_up_logging
from vedette_services.host.process_end import run_to_end
from vedette_services.host.processes import WakeupEvent, die_with_parent, ignore_stop_signals
from vedette_services.learner.snapshot.io_share import IoShare
from vedette_services.learner.snapshot.writer import SnapshotWriter
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.replay_layout import replay_directory
from vedette_services.run.ring_stamp import read_archive_end
from vedette_services.run.snapshot_directory import snapshot_root
from vedette_services.status.records import (
    SnapshotProgress,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)

log = logging.getLogger("vedette.snapshot")

_RETRY_S = 2.0  # for a directory that is away
_TRIES = 3  # to write a generation while others come between
_POLL_S = 0.5
_END_EVERY_S = 0.2  # once the run is over: managers wait for it


class SnapshotProcess:
    """Takes generations until it is told to stop, and then one more.

    Args:
        spec: of the run.
        stop: set when the gateway has ended.
    """

    def __init__(self, spec: LearnerSpec, stop: WakeupEvent) -> None:
        config = spec.config.learner
        root = snapshot_root(spec.config)
        assert root is not None, "else there is no such process"
        self._stop = stop
        self._root = root
        self._interval_s = config.snapshot_interval_s
        self._share = IoShare(
            config.snapshot_share,
            lambda seconds: wait_readable(stop.fileno(), seconds),
            hurries=lambda: self._progress.state != "written" or self._is_over,
        )
        replay = replay_directory(spec.config, spec.run.root)
        archive_end = partial(read_archive_end, spec.run_id)
        self._writer = SnapshotWriter(self._root, replay, spec.run, archive_end)
        self._learning = StatusRecordReader(spec.run.learning_map, TrainerStatus)
        self._record = StatusRecordWriter(spec.run.snapshot_map, SnapshotProgress)
        self._safe = LatestValueWriter(spec.run.safe_map, STAMP_MAX_BYTES)
        # What a process of this start has written that died: it was a generation, too.
        self._progress = StatusRecordReader(spec.run.snapshot_map, SnapshotProgress).read()
        self._fault = ""  # why the directory cannot be written; "": it can

    def run(self) -> None:
        """Serve until `stop` is set, or the snapshot is another learner's."""
        while self._progress.state != "taken":
            is_last = self._stop.is_set
            self._take()
            if is_last:
                return
            self._wait()

    def _take(self) -> None:
        """Take a generation, and say what has come of it."""
        self._share.begin()
        self._note(replace(self._progress, began_s=time.monotonic()))
        try:
            generations = (self._writer.take(self._share) for _ in range(_TRIES))
            generation = next(filter(None, generations), None)
        except SnapshotTakenError as error:
            self._note(replace(self._progress, state="taken", why=error.newest, began_s=0.0))
            return
        except OSError as error:
            what = error.strerror or str(error)
            self._note_away(what, f"{what} ({error.filename or self._root})")
            return
        except SnapshotFormatError as error:
            self._note_away(str(error), str(error))
            return
        if generation is None:
            self._note(replace(self._progress, began_s=0.0))
        else:
            # Only now: what is called safe is in a generation that was verified.
            self._safe.write(generation.ring.stamp)
            self._fault = ""
            self._note(
                SnapshotProgress(
                    "written",
                    generation.number,
                    generation.ring.inserted,
                    generation.reserved,
                    opt_steps=generation.opt_steps,
                    completed_s=time.monotonic(),
                )
            )

    def _note_away(self, what: str, why: str) -> None:
        """Note that the directory cannot be written; log it once for each fault.

        Args:
            what: the fault.
            why: the same with the name of a file, which is another one at each try.
        """
        if what != self._fault:
            log.warning(
                "learner.snapshot: %s: nothing more is safe, and outboxes keep what they send, "
                "until it can be written",
                why,
            )
        self._fault = what
        failures = self._progress.failures + 1
        self._note(replace(self._progress, state="away", why=why, began_s=0.0, failures=failures))

    def _note(self, progress: SnapshotProgress) -> None:
        before = self._progress
        self._progress = progress
        self._record.write(progress)
        if progress.state == "written" and before.state != "written":
            log.info(
                "the snapshot in %s has %d rows (generation %d)",
                self._root,
                progress.rows,
                progress.number,
            )

    @property
    def _is_over(self) -> bool:
        """True once the run is over, and managers wait for what is safe."""
        return self._learning.read().phase == "done"

    def _wait(self) -> None:
        """Wait until the next generation is due."""
        began = time.monotonic()
        due_s = self._interval_s if self._progress.state == "written" else _RETRY_S
        while not self._stop.is_set:
            left_s = began + (_END_EVERY_S if self._is_over else due_s) - time.monotonic()
            if left_s <= 0.0:
                return
            wait_readable(self._stop.fileno(), min(_POLL_S, left_s))


def main() -> None:
    """`python -m vedette_services.learner.snapshot.process RUN STOP`"""
    die_with_parent()
    ignore_stop_signals()
    set_up_logging()
    with report_exit():
        stop = WakeupEvent(sys.argv[2])
        spec = LearnerSpec.read(RunDirectory(Path(sys.argv[1])).root)
        spec.hold_run()
        SnapshotProcess(spec, stop).run()


if __name__ == "__main__":
    run_to_end(main, log.warning)
