"""The model of the outbox: every promise holds, and each rule that is taken out is missed."""

import outbox  # beside this file
import pytest
from outbox_world import World, play

_BUNCH = 100
_FIRST = [pytest.param(_BUNCH * n, marks=[pytest.mark.slow] * (n > 0)) for n in range(50)]


@pytest.mark.parametrize("first", _FIRST)
def test_what_is_promised_of_an_outbox_is_kept_whatever_fails(first: int) -> None:
    assert [broken for n in range(_BUNCH) if (broken := play(first + n))] == []


# Rules of the wire as it is proposed, of the file, of the ledger and of the snapshot.
@pytest.mark.parametrize(
    "rule",
    [
        "numbered_when_appended",
        "session_ends_with_process",
        "deleted_when_safe",
        "stored_is_of_one_learner",
        "one_session_for_older_learners",
        "older_by_its_run",
        "rival_stays_open",
        "never_forgotten",
        "snapshot_is_of_one_moment",
        "descent_is_checked",
    ],
)
def test_a_rule_that_is_taken_out_is_missed(rule: str) -> None:
    played, _ = outbox.find_broken(range(1_000_000, 1_000_100), outbox.without(rule))
    assert played


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("rule", outbox.rule_names())
def test_every_rule_that_is_taken_out_is_missed(rule: str) -> None:
    played, _ = outbox.find_broken(range(1_000_000, 1_004_000), outbox.without(rule))
    assert played


@pytest.mark.parametrize(("rule", "seed"), [("newest_is_compared", 4), ("created_from_aside", 471)])
def test_a_generation_that_was_begun_before_the_snapshot_was_put_back_is_missed(
    rule: str, seed: int
) -> None:
    """The directory was damaged before the learner was replaced: nothing is excused."""
    kinds = ("kill_learner", "take_over", "roll_back_snapshot")
    assert "only failed is no descendant" in play(seed, outbox.without(rule), kinds)
    assert play(seed, kinds=kinds) == ""


def test_kills_a_cut_network_and_the_loss_of_the_learners_host_cost_an_outbox_no_row() -> None:
    kinds = ("kill", "kill_learner", "power_learner", "cut", "unmount", "destroy", "take_over")
    worlds = [World(seed, kinds=kinds) for seed in range(40)]
    worlds = [world for world in worlds if world.snapshot is not None]
    for world in worlds:
        for host in world.hosts:
            host.drops = False
        world.run()
    assert sum(world.rows_stored for world in worlds) > 300
    assert sum(world.rows_lost for world in worlds) == 0


def test_the_schedules_have_every_kind_of_fault_and_store_rows() -> None:
    kinds: set[str] = set()
    rows = 0
    for seed in range(40):
        world = World(seed)
        world.run()
        kinds.update(world.faults)
        rows += world.rows_stored
    assert {"kill", "power", "roll_back", "clone", "destroy", "take_over", "wipe"} <= kinds
    assert {"power_learner", "roll_back_replay", "roll_back_snapshot", "upgrade"} <= kinds
    assert {"fail_sync", "tear", "second", "freeze_learner"} <= kinds
    assert rows > 300


def test_a_seed_has_one_course() -> None:
    courses = []
    for _ in range(2):
        world = World(12)
        world.run()
        courses.append((world.story, world.now, world.rows_stored))
    assert courses[0] == courses[1]
