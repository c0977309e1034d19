"""The learner's host is gone with its disk: it goes on elsewhere from the snapshot, and no row of a
manager with an outbox is lost or stored twice."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from counting_run import N_BUFFER
from daemons import Daemon, Daemons, wait_for
from test_outbox_killed import OutboxRun

from vedette_protocol.limits import OLD_ACCOUNTS_MAX
from vedette_services.net.keys import make_keys
from vedette_services.run.snapshot_directory import Generation, SnapshotDirectory

pytestmark = pytest.mark.timeout(300)

INTERVAL_S = 1.0


class SnapshotRun(OutboxRun):
    """A learner with a snapshot, and a manager with an outbox, who know each other's keys."""

    def __init__(self, daemons: Daemons, *settings: str) -> None:
        keys = daemons.place / "keys"
        make_keys(keys, [])
        self.snapshot: Path = daemons.place / "snapshot"
        super().__init__(
            daemons,
            f"learner.snapshot={self.snapshot}",
            f"learner.snapshot_interval_s={INTERVAL_S}",
            "replay.sync_interval_s=0.5",
            *settings,
            keys=keys,
        )

    def newest(self) -> Generation:
        newest = SnapshotDirectory(self.snapshot).look().newest
        assert newest is not None
        return newest

    def wait_for_rows(self) -> int:
        """Wait until the snapshot has rows that came after this call; returns how many it has."""
        inserted = self.flows()
        wait_for(lambda: self.newest().ring.inserted >= inserted, "generation with new rows")
        return self.newest().ring.inserted

    def lose_host(self) -> None:
        """Kill the learner, and delete all that its host had."""
        self.learner.kill9()
        wait_for(lambda: not self.learner.children(), "end of its processes")
        shutil.rmtree(self.run)

    def start_elsewhere(self, name: str) -> Daemon:
        """Start a learner from the snapshot, in a folder of that name."""
        self.run = self.run.with_name(name)
        return self.start_learner(options=("--from-snapshot", self.snapshot))

    def kill_in_the_middle(self) -> None:
        """Kill the learner while a generation is written: it has bytes that no generation lists."""
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline:
            listed = {part.name: part.size for part in self.newest().ring.parts}
            parts = self.snapshot.glob("rows-*")
            if any(path.stat().st_size > listed.get(path.name, 0) for path in parts):
                self.learner.kill9()
                return
        raise AssertionError("no generation was written")


def test_the_learners_host_is_gone_and_no_row_is_lost_or_comes_twice(daemons: Daemons) -> None:
    run = SnapshotRun(daemons)
    run.wait_for_rows()
    os.kill(run.learner.child("snapshot"), signal.SIGSTOP)  # as a mount that does not answer
    run.flows(3000)
    assert run.held() * N_BUFFER >= 3000, "what is not in the snapshot stays in the outbox"
    run.lose_host()
    run.start_elsewhere("elsewhere")
    run.flows()
    run.manager.kill9()
    run.start_robot()
    run.flows()
    run.assert_all_was_stored(1)


@pytest.mark.slow
def test_a_learner_is_killed_in_the_middle_of_its_snapshots_and_then_its_host_is_gone(
    daemons: Daemons,
) -> None:
    run = SnapshotRun(daemons)
    for _ in range(3):
        run.wait_for_rows()
        run.kill_in_the_middle()
        run.start_learner()
    run.flows()
    run.kill_in_the_middle()
    run.lose_host()
    run.start_elsewhere("elsewhere")
    run.flows()
    run.assert_nothing_was_lost()


@pytest.mark.slow
def test_a_learner_that_was_taken_for_dead_is_refused_and_its_rows_are_sent_to_its_successor(
    daemons: Daemons,
) -> None:
    run = SnapshotRun(daemons)
    run.wait_for_rows()
    run.learner.kill9()
    dead = run.run
    successor = run.start_elsewhere("elsewhere")
    run.wait_for_rows()
    assert successor.stop() == 0
    run.run = dead
    assert run.start_learner().wait(60.0) == 3
    assert "another learner was started from it" in run.learner.log
    run.run = dead.with_name("elsewhere")
    run.start_learner()
    run.flows()
    run.assert_nothing_was_lost()


@pytest.mark.slow
@pytest.mark.timeout(600)  # it starts nine managers
def test_files_of_a_session_of_long_ago_are_known_after_the_learners_host_is_gone(
    daemons: Daemons,
) -> None:
    """Its account is not in the ledger's stamp any more, but in the archive, and in the snapshot's
    copy of that."""
    run = SnapshotRun(daemons)
    run.wait_for_rows()
    os.kill(run.learner.child("snapshot"), signal.SIGSTOP)  # nothing is safe, so files stay
    run.flows()
    run.manager.kill9()
    old = daemons.place / "old"
    shutil.copytree(run.outbox, old)
    os.kill(run.learner.child("snapshot"), signal.SIGCONT)
    kills = OLD_ACCOUNTS_MAX + 2
    for _ in range(kills):
        run.start_robot()
        run.flows()
        run.manager.kill9()
    wait_for(lambda: len(run.newest().ring.archive) > 0, "closed sessions in the snapshot")
    run.start_robot()
    run.lose_host()
    run.start_elsewhere("elsewhere")
    run.flows()
    run.manager.kill9()
    shutil.copytree(old, run.outbox, dirs_exist_ok=True)
    run.start_robot()
    run.flows()
    run.assert_all_was_stored(kills + 2)


def test_at_the_end_of_a_run_all_of_it_is_in_the_snapshot_and_the_outbox_is_empty(
    daemons: Daemons,
) -> None:
    run = SnapshotRun(daemons, "stop.max_env_steps=3000", "learner.snapshot_interval_s=600")
    assert run.manager.wait(120.0) == 0
    assert run.learner.wait(60.0) == 0
    assert run.files() == []
    assert run.newest().ring.inserted == run.summary["samples"]["inserted"]
