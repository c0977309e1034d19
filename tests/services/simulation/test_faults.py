"""Every row arrives once and the accounting balances, whatever the network does."""

from collections.abc import Collection
from dataclasses import replace

import pytest
from simulated_fleet import SimulatedFleet  # beside this file

from vedette_services.simulation.network import GATEWAY, FaultPlan

NETWORK = FaultPlan(
    drop=0.03,
    repeat=0.05,
    reorder=0.1,
    delay_s=(0.001, 0.05),
    late_s=(0.0, 2.0),
    cuts_per_s=0.04,
    cut_s=(0.1, 8.0),
    until_s=40.0,
)


def balances(fleet: SimulatedFleet) -> None:
    accounting = fleet.accounting()
    inserted_and_not = accounting.inserted + accounting.rejected + accounting.dropped
    assert accounting.produced == inserted_and_not + accounting.in_flight + accounting.lost
    assert min(accounting.counts()) >= 0
    assert accounting.inserted == fleet.ring.inserted == fleet.arrived().total()


def all_arrived(fleet: SimulatedFleet) -> None:
    """Every row that was ever made is in the ring, once."""
    assert fleet.arrived() == dict.fromkeys(fleet.made, 1)
    accounting = fleet.accounting()
    assert accounting.produced == accounting.inserted == len(fleet.made)
    assert accounting.lost == accounting.in_flight == accounting.rejected == accounting.dropped == 0


def played(plan: FaultPlan, *, kill: Collection[str] = ()) -> SimulatedFleet:
    """A fleet that went through its faults, and then had time to hand everything in."""
    fleet = SimulatedFleet(3, plan, kill=kill)
    for _ in range(20):
        fleet.play(plan.until_s / 20)
        balances(fleet)
    fleet.play(45.0)
    fleet.end(within_s=30.0)
    balances(fleet)
    assert len(fleet.made) > 2_000
    return fleet


@pytest.mark.parametrize("seed", range(6))
def test_every_row_arrives_once_through_a_network_with_faults(seed: int) -> None:
    fleet = played(replace(NETWORK, seed=seed))
    all_arrived(fleet)
    assert fleet.accounting().duplicates > 0


@pytest.mark.parametrize("seed", range(4))
def test_every_row_arrives_once_where_the_gateway_is_killed(seed: int) -> None:
    fleet = played(replace(NETWORK, seed=seed, kills_per_s=0.05), kill=[GATEWAY])
    all_arrived(fleet)
    assert fleet.kills > 0


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_manager_loses_its_window_at_most(seed: int) -> None:
    fleet = played(replace(NETWORK, seed=seed, kills_per_s=0.05), kill=[GATEWAY, "m0", "m1"])
    arrived = fleet.arrived()
    assert arrived == dict.fromkeys(arrived, 1)
    missing = len(fleet.made - arrived.keys())
    assert arrived.keys() <= fleet.made
    assert 0 < missing <= fleet.kills * fleet.rows_held_max
    assert fleet.accounting().in_flight == 0


def test_a_seed_gives_the_same_faults_and_the_same_rows() -> None:
    once, again = (SimulatedFleet(2, replace(NETWORK, seed=3)) for _ in range(2))
    for fleet in (once, again):
        fleet.play(10.0)
    assert once.accounting() == again.accounting()
    numbers, same = (fleet.ring.columns["number"].tobytes() for fleet in (once, again))
    assert numbers == same
