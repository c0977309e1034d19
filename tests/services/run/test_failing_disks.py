"""Replay, ledger, checkpoints and ``run.json`` over disks that fail, in one process.

After every fault: synced rows and saved checkpoints are there, no row is broken or there twice, and
the accounting knows what is lost.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import disk_mutants  # beside this file
import pytest
from failing_life import FAULTS, live
from kinds_of_rows import Machine


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


def test_every_mutation_is_one_of_the_code_as_it_is() -> None:
    for mutation in disk_mutants.MUTATIONS.values():
        spec = importlib.util.find_spec(mutation.module)
        assert spec is not None
        compile(mutation.mutate(spec), mutation.module, "exec")


def test_a_mutation_is_found() -> None:
    command = [sys.executable, disk_mutants.__file__, "0", "1"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert 0 < int(found.stdout) < 50


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_every_mutation_is_found() -> None:
    assert disk_mutants.main() == 0
