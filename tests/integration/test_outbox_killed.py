"""Managers with an outbox are killed: what they had taken from their actors is stored, once."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from counting_run import N_BUFFER, WINDOW_BATCHES, CountingRun
from daemons import HERE, ROOT, Daemon, Daemons, wait_for
from previous_release import unpack_previous
from test_lost_power import tear

from vedette_services.actors.actor_spec import SLOTS
from vedette_services.actors.outbox.records import read_segment

pytestmark = pytest.mark.timeout(240)

KILLS = 3


class OutboxRun(CountingRun):
    """Counting environments that a manager with an outbox plays."""

    def __init__(
        self, daemons: Daemons, *settings: str, source: Path = ROOT, keys: Path | None = None
    ) -> None:
        super().__init__(daemons, *settings, source=source, keys=keys)
        self.outbox: Path = daemons.place / "outbox"
        self.manager = self.start_robot()

    def start_robot(self) -> Daemon:
        self.manager = self.start_manager("robot", "--outbox", self.outbox)
        return self.manager

    def files(self) -> list[Path]:
        return sorted(self.outbox.glob("*.outbox"))

    def sessions(self) -> set[str]:
        return {path.name.split("-")[1] for path in self.files()}

    def held(self) -> int:
        """Batches in the files."""
        found = 0
        for path in self.files():
            try:
                found += len(read_segment(path.read_bytes()).records)
            except FileNotFoundError:
                continue  # safe meanwhile
        return found

    def assert_all_was_stored(self, kills: int) -> None:
        """Every row that a manager had taken is stored, and once. What its actors had not handed
        over died with them."""
        wait_for(lambda: len(self.sessions()) <= 1, "the learner to have what was left")
        proof, accounting = self.finish()
        assert accounting["produced"] == accounting["inserted"], accounting
        assert accounting["lost"] == accounting["in_flight"] == accounting["dropped"] == 0
        assert len(proof.missing) <= kills, proof
        assert max(proof.missing.values(), default=0) <= (SLOTS + 1) * N_BUFFER, proof


def test_a_manager_is_killed_again_and_again_and_no_sample_that_it_took_is_lost(
    daemons: Daemons,
) -> None:
    run = OutboxRun(daemons)
    run.flows()
    for _ in range(KILLS):
        run.manager.kill9()
        run.start_robot()
        run.flows()
    run.assert_all_was_stored(KILLS)


@pytest.mark.slow
def test_a_manager_plays_on_beyond_its_window_while_the_learner_is_away_and_is_killed(
    daemons: Daemons,
) -> None:
    run = OutboxRun(daemons)
    run.flows()
    run.learner.kill9()
    wait_for(lambda: run.held() > 3 * WINDOW_BATCHES, "more batches than a window holds")
    run.manager.kill9()
    run.start_learner()
    run.start_robot()
    run.flows()
    run.assert_all_was_stored(1)


@pytest.mark.slow
def test_a_manager_with_another_id_sends_what_is_left_under_the_old_one(daemons: Daemons) -> None:
    run = OutboxRun(daemons, "replay.sync_interval_s=60")  # nothing is safe before the kill
    run.flows()
    run.manager.kill9()
    run.start_manager("other", "--outbox", run.outbox)
    run.flows()
    run.learner.kill9()  # its next start has all of it on the disk
    run.start_learner()
    run.flows()
    run.assert_all_was_stored(1)


def test_an_outbox_is_empty_at_the_end_of_its_run(daemons: Daemons) -> None:
    run = OutboxRun(daemons, "stop.max_env_steps=3000", "replay.sync_interval_s=60")
    assert run.manager.wait(60.0) == 0
    assert run.learner.wait(60.0) == 0
    assert run.files() == []


def test_a_second_manager_on_the_same_outbox_ends(daemons: Daemons) -> None:
    run = OutboxRun(daemons)
    run.flows()
    second = run.start_manager("second", "--outbox", run.outbox)
    assert second.wait(30.0) == 2
    assert "is in use by another manager" in second.log
    run.managers.remove(second)
    run.assert_nothing_was_lost()


class OutboxLoopRun(OutboxRun):
    """The same, with a program whose loop is its own."""

    def start_robot(self) -> Daemon:
        program = [sys.executable, str(HERE / "outbox_loop.py"), str(self.address)]
        program += [str(self.tally), str(self.outbox)]
        self.manager = Daemon("loop", self._daemons, program)
        self._daemons.started.append(self.manager)
        self.managers.append(self.manager)
        return self.manager


@pytest.mark.slow
def test_a_program_with_a_loop_of_its_own_is_killed_and_no_batch_that_it_finished_is_lost(
    daemons: Daemons,
) -> None:
    run = OutboxLoopRun(daemons)
    run.flows()
    for _ in range(2):
        run.manager.kill9()
        run.start_robot()
        run.flows()
    run.assert_all_was_stored(2)


@pytest.mark.slow
def test_a_learner_of_the_previous_release_stores_what_a_killed_manager_has_left(
    daemons: Daemons, tmp_path: Path
) -> None:
    """It sees one session at a time. Then the learner is upgraded."""
    (tmp_path / "previous").mkdir()
    run = OutboxRun(daemons, source=unpack_previous(tmp_path / "previous"))
    run.flows()
    run.manager.kill9()
    run.start_robot()
    run.flows()
    assert run.learner.stop() == 0
    run.start_learner()
    run.flows()
    run.manager.kill9()
    run.start_robot()
    run.flows()
    run.assert_all_was_stored(2)


@pytest.mark.slow
def test_a_power_failure_of_the_learners_host_costs_a_manager_with_an_outbox_nothing(
    daemons: Daemons,
) -> None:
    run = OutboxRun(daemons, "replay.sync_interval_s=1")
    for seed in range(2):
        run.flows(3000)
        run.learner.kill9()
        tear(run.run / "replay", random.Random(seed))
        run.start_learner()
    run.flows(3000)
    run.assert_nothing_was_lost()
