"""Strict blocks come whatever is killed: nobody waits for whom will not come."""

from __future__ import annotations

import pytest
from strict_world import ENVS, STEPS, StrictWorld  # beside this file

LONGEST_S = 45.0
"""Of a block, with nothing killed any more: managers that are gone, a lost model, and patience."""


def test_nothing_is_played_in_vain_by_a_fleet_that_stays() -> None:
    with StrictWorld(runs=8, managers={"a": 2, "b": 2}, seed=0) as world:
        world.play(20.0)
        counts = world.replay.counts
        assert world.blocks > 10
        assert counts.stale == 0
        assert counts.trained == world.blocks * 8 * STEPS
        assert "replay.strict" in world.gateway.status().limiter_reason


def test_a_block_of_more_runs_than_there_are_environments_becomes_whole() -> None:
    with StrictWorld(runs=10, managers={"a": 1, "b": 1}, seed=1) as world:
        world.play(20.0)
        assert world.blocks > 3
        assert world.replay.counts.stale <= (world.blocks + 1) * 2 * ENVS * STEPS


@pytest.mark.parametrize("gone", ["killed", "frozen"])
def test_others_play_for_a_manager_that_does_not(gone: str) -> None:
    with StrictWorld(runs=8, managers={"a": 2, "b": 2}, seed=2) as world:
        world.play(5.0)
        if gone == "killed":
            world.kill_manager("b", back_s=None)
        else:
            world.frozen.add("b")  # it reports, and its actors make no step
        world.calm()
        before = world.blocks
        world.play(60.0)
        assert world.blocks > before + 20, "after it was missed once it is not waited for"
        assert world.longest < LONGEST_S
        if gone == "frozen":
            world.frozen.clear()
            world.play(5.0)
            stale = world.replay.counts.stale
            before = world.blocks
            world.play(10.0)
            assert world.blocks > before + 2
            assert world.replay.counts.stale - stale <= 8 * STEPS, "it takes its part again"


def test_a_manager_that_joins_late_takes_its_part() -> None:
    with StrictWorld(runs=8, managers={"a": 2}, seed=3) as world:
        world.play(5.0)
        world.actors_of["b"] = 2
        world.start_manager("b")
        world.play(5.0)
        stale = world.replay.counts.stale
        world.play(10.0)
        assert world.replay.counts.stale == stale
        assert sum(actor._actor._loop.env_steps for actor in world.hosts["b"].actors.values()) > 100


def test_a_gateway_that_forgets_who_handed_over_does_not_stop_the_run() -> None:
    with StrictWorld(runs=9, managers={"a": 2, "b": 2}, seed=4) as world:
        for _ in range(6):
            world.play(3.37)
            world.kill_gateway()
        world.calm()
        before = world.blocks
        world.play(60.0)
        assert world.blocks > before + 10
        assert world.longest < LONGEST_S


def test_a_gateway_that_starts_within_a_large_block_goes_on_with_it() -> None:
    """Of 20 runs for each environment most are played, and the new gateway knows of none."""
    with StrictWorld(runs=40, managers={"a": 1}, seed=5) as world:
        world.paces["a", 0] = 0.02
        world.play(4.0)
        for _ in range(4):
            world.play(1.1)
            world.kill_gateway()
        world.calm()
        before = world.blocks
        world.play(30.0)
        assert world.blocks > before + 8
        assert world.longest < LONGEST_S


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed > 1)) for seed in range(8)]
)
def test_blocks_come_after_kills_of_everybody(seed: int) -> None:
    managers = {"a": 1, "b": 2, "c": 3}
    with StrictWorld(runs=5 + seed, managers=managers, seed=seed, loses=0.05) as world:
        rng = world.rng
        for _ in range(40):
            world.play(rng.uniform(0.1, 1.5))
            match rng.choice(("actor", "actor", "manager", "gateway", "trainer", "freeze", "thaw")):
                case "actor":
                    world.kill_actor(rng.choice(list(managers)))
                case "manager":
                    world.kill_manager(rng.choice(list(managers)), rng.uniform(0.0, 4.0))
                case "gateway" if not world.gateway.ended:
                    world.kill_gateway()
                case "trainer":
                    world.start_trainer()
                case "freeze" if len(world.frozen) < len(managers) - 1:  # somebody plays
                    world.frozen.add(rng.choice(list(managers)))
                case "thaw":
                    world.frozen.clear()
        world.calm()
        before = world.blocks
        world.play(2 * LONGEST_S)
        world.frozen.clear()
        world.play(LONGEST_S)
        assert world.blocks > before + 5
        assert world.longest < LONGEST_S, world.gateway.status().limiter_reason
