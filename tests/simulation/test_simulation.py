"""Fleets under faults drawn from seeds: every invariant holds, and broken code is found."""

import subprocess
import sys

import mutants  # beside this file
import pytest
import simulate
from scenario import draw_scenario
from simulated_fleet import SimulatedFleet

_BUNCH = 30
_FAULT_S = 2.0


@pytest.mark.parametrize("first", range(0, 7 * _BUNCH, _BUNCH))
def test_every_invariant_holds_whatever_befalls_the_fleet(first: int) -> None:
    outcomes = [simulate.simulate(first + n, fault_s=_FAULT_S) for n in range(_BUNCH)]
    assert [f"seed {o.seed}: {o.error}" for o in outcomes if o.error] == []


@pytest.mark.parametrize("seed", [21405, 21439, 21518])
def test_a_hostile_key_whose_managers_start_again_takes_no_place_of_others(seed: int) -> None:
    assert simulate.simulate(seed).error == ""


@pytest.mark.slow
def test_every_invariant_holds_in_a_fleet_of_300_managers() -> None:
    assert simulate.simulate(1, managers=300, fault_s=20.0).error == ""


def test_a_seed_has_one_course_whatever_the_hashes_of_strings_are() -> None:
    command = [sys.executable, simulate.__file__, "--seed", "27", "--trace"]
    courses = {
        subprocess.run(
            command, check=True, capture_output=True, env={"PYTHONHASHSEED": str(n)}
        ).stdout
        for n in range(2)
    }
    assert len(courses) == 1
    assert courses.pop().count(b"\n") > 10


def test_most_seeds_have_faults_of_several_kinds() -> None:
    kinds = [{fault.kind for fault in draw_scenario(seed).faults} for seed in range(100)]
    assert set.union(*kinds) == {"cut", "pause", "kill", "restart", "power", "trainer", "stall"}
    assert sum(len(kind) >= 2 for kind in kinds) > 50


def test_a_killed_manager_loses_rows_and_they_are_counted() -> None:
    fleets = [SimulatedFleet(draw_scenario(seed, fault_s=_FAULT_S)) for seed in range(6)]
    for fleet in fleets:
        fleet.run()
    assert sum(fleet.disk.excused for fleet in fleets) > 0
    assert sum(fleet.disk.inserted for fleet in fleets) > 1_000


def test_a_mutation_is_found() -> None:
    command = [sys.executable, mutants.__file__, "0", "1"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert 0 < int(found.stdout) < 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_mutation_is_found() -> None:
    assert mutants.main() == 0
