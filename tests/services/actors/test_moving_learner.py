"""A learner that a file names, and that moves: `--learner @FILE`."""

from __future__ import annotations

from pathlib import Path

from fake_learner import FakeLearner, a_run, free_address
from test_manager import ManagerProcess, assert_every_step_arrived_once, balanced

COUNT = {"id": "actors_test_envs:ActorsCount-v0"}


def test_a_manager_waits_for_the_file_and_follows_the_learner_with_its_window(
    tmp_path: Path,
) -> None:
    place, log = tmp_path / "learner.address", tmp_path / "manager.log"
    manager = ManagerProcess(f"@{place}", 1, log, "actors_test_envs")
    first = FakeLearner(free_address(), a_run(COUNT))
    try:
        first.until(lambda: "waiting for the learner's address" in manager.log, 60)
        place.write_text(f"{first.address}\n")
        first.until(lambda: first.rows() > 500, 60)
        first.close()
        second = FakeLearner(free_address(), a_run(COUNT), ledger=first.ledger)
        second.batches = first.batches
        place.write_text(str(second.address))
        had = first.rows()
        second.until(lambda: second.rows() > had + 500, 60)
        second.stop(final=True)
        second.until(lambda: "gone" in second.states)
        assert manager.wait() == 0
        assert_every_step_arrived_once(second)
        balanced(second)
        second.close()
    finally:
        manager.end()
