"""Fleets under faults drawn from seeds: every invariant holds, and broken code is found."""

import importlib.util
import subprocess
import sys
from dataclasses import replace

import mutants  # beside this file
import pytest
import simulate
from faulty_network import NetworkFaults
from scenario import Fault, draw_scenario
from simulated_fleet import SimulatedFleet

from vedette_rl.replay.limiter import Limiter

_BUNCH = 30
_FAULT_S = 2.0


_FIRST = [pytest.param(_BUNCH * n, marks=[pytest.mark.slow] * (n > 0)) for n in range(7)]


@pytest.mark.parametrize("first", _FIRST)
def test_every_invariant_holds_whatever_befalls_the_fleet(first: int) -> None:
    outcomes = [simulate.simulate(first + n, fault_s=_FAULT_S) for n in range(_BUNCH)]
    assert [f"seed {o.seed}: {o.error}" for o in outcomes if o.error] == []


@pytest.mark.parametrize("seed", [21405, 21439, 21518])
def test_a_hostile_key_whose_managers_start_again_takes_no_place_of_others(seed: int) -> None:
    assert simulate.simulate(seed).error == ""


# A batch is lost three times running; a batch is sent again just before a cut of 10 s ends.
@pytest.mark.parametrize("seed", [5689, pytest.param(7266, marks=pytest.mark.slow)])
def test_a_batch_that_is_lost_three_times_is_no_wait_without_a_reason(seed: int) -> None:
    assert simulate.simulate(seed).error == ""


def test_an_impostor_does_not_change_why_the_second_process_of_an_id_is_refused() -> None:
    assert simulate.simulate(8319).error == ""


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


def test_a_manager_that_is_stopped_for_long_need_not_say_why_it_waits() -> None:
    """Seed 100000 with 2,000 managers, one of which was stopped 16 s by pauses side by side."""
    stops = (Fault(47.0, "pause", "m0", 9.0), Fault(55.0, "pause", "m0", 9.0))
    drawn = draw_scenario(3, managers=1, fault_s=65.0)
    late = NetworkFaults(delay_s=(0.2, 0.4))  # so that it holds batches when it is stopped
    quiet = replace(drawn, faults=stops, copies=(), hostile=(), messages=late, skew=0.0)
    SimulatedFleet(replace(quiet, batch_gap_s=(0.2, 0.4))).run()


def test_a_first_model_that_does_not_come_is_said_though_the_gateway_is_killed_meanwhile() -> None:
    """Seed 464: each start of the gateway began the wait anew."""
    assert simulate.simulate(464, fault_s=3.0).error == ""


def shared_id(hostile: bool) -> SimulatedFleet:
    """A fleet without faults that has run; two machines use the id m0."""
    quiet = replace(
        draw_scenario(3, managers=2, fault_s=6.0),
        faults=(),
        messages=NetworkFaults(delay_s=(0.001, 0.01)),
        limiter=Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=1),
        unsound=0.0,
        hostile=(("copy", 0.5),) if hostile else (),
        hostile_stays=hostile,
        copies=() if hostile else (("m0+2", 1.0),),
    )
    fleet = SimulatedFleet(quiet)
    fleet.run()
    return fleet


def test_of_two_machines_with_one_configuration_the_later_one_is_refused_and_says_why() -> None:
    fleet = shared_id(hostile=False)
    assert {name for name, host in fleet.hosts.items() if host.refused} == {"m0+2"}
    why = "two managers use the id m0: host-of-m0 and host-of-m0+2"
    end = fleet.hosts["m0+2"].exit
    gateway = fleet.gateway
    assert end is not None
    assert why in end.reason
    assert gateway is not None
    assert gateway.state.admission.rivals == 1


def test_a_hostile_process_with_an_honest_managers_id_and_key_is_refused() -> None:
    fleet = shared_id(hostile=True)
    assert not any(host.refused for host in fleet.hosts.values())
    assert fleet.gateway is not None
    assert fleet.gateway.state.admission.rivals == 1


def test_every_mutation_is_one_of_the_code_as_it_is() -> None:
    for mutation in mutants.MUTATIONS.values():
        spec = importlib.util.find_spec(mutation.module)
        assert spec is not None
        compile(mutation.mutate(spec), mutation.module, "exec")


def test_a_mutation_is_found() -> None:
    command = [sys.executable, mutants.__file__, "0", "1"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert 0 < int(found.stdout) < 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_mutation_is_found() -> None:
    assert mutants.main() == 0
