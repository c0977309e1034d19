"""Replay, ledger, checkpoints and ``run.json`` over disks that fail, in one process.

After every fault: synced rows and saved checkpoints are there, no row is broken or there twice, and
the accounting knows what is lost.
"""

import random
from pathlib import Path

import pytest
from failing_life import Life, living
from kinds_of_rows import Machine

FAULTS = (
    "end_orderly",
    "restart",
    "restart_gateway",
    "kill_in_commit",
    "come_from_older_release",
    "fail_sync",
    "lie_and_fail",
    "lose_cache",
    "run_full",
    "fail_reads",
    "take_snapshot",
    "put_back_snapshot",
    "put_back_slow_copy",
)


def live(root: Path, machine: Machine, seed: int, faults: tuple[str, ...]) -> Life:
    """One life, with these faults in random order."""
    chance = random.Random(seed)
    root.mkdir()
    with living(root, machine, chance) as life:
        for _ in range(chance.randint(2, 6)):
            for _ in range(chance.randint(0, 40)):
                life.work()
            getattr(life, chance.choice(faults))()
    return life


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_lives_through_a_fault(tmp_path: Path, machine: Machine, fault: str) -> None:
    for seed in range(6):
        live(tmp_path / str(seed), machine, seed, (fault, "restart", "take_snapshot"))


def test_runs_live_through_all_faults(tmp_path: Path, machine: Machine) -> None:
    lives = [live(tmp_path / str(seed), machine, 1000 + seed, FAULTS) for seed in range(20)]
    assert any(life.lost for life in lives)
    assert not all(life.lost for life in lives)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_two_thousand_runs_live_through_all_faults(tmp_path: Path, machine: Machine) -> None:
    for seed in range(2000):
        live(tmp_path / str(seed), machine, 100_000 + seed, FAULTS)
