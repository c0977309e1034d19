"""Blocks of runs, each drawn a fixed number of times, in order, whatever ends in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from queue_model import BATCH, CAPACITY, STEPS, QueueWorld  # of tests/support

from vedette_rl.errors import EmptyReplayError, QueueOverrunError
from vedette_rl.replay.queue import QueueReplay, mark_runs


def test_runs_begin_where_rows_do_not_follow_and_after_as_many_as_they_have() -> None:
    env = np.array([0, 0, 0, 0, 0, 1, 1, 1, 2])
    time = np.array([7, 8, 9, 10, 11, 3, 4, 6, 7])
    marks = mark_runs(env, time, 4)
    assert np.flatnonzero(marks).tolist() == [0, 4, 5, 7, 8]
    stacked = mark_runs(np.stack([env, env]), np.stack([time, time + 1]), 4)
    assert (stacked == marks).all()


def test_a_block_is_drawn_in_order_and_each_pass_has_every_row_once() -> None:
    world = QueueWorld()
    with pytest.raises(EmptyReplayError):
        world.replay.sample(BATCH)
    assert world.insert(2, STEPS)
    assert world.insert(1, 3)
    world.look()
    assert world.replay.wait_reason() == ("learner waits: 3 of 4 runs of the next block are there")
    assert world.insert(2, STEPS)
    drawn = []
    for _ in range(4):
        world.replay.look()
        sample = world.replay.sample(BATCH)
        drawn.append(sample.columns["chosen"].tolist())
        world.replay.done()
    assert sorted(drawn[0] + drawn[1]) == sorted(drawn[2] + drawn[3]) == list(range(16))
    assert drawn[:2] != drawn[2:]
    ids = sample.columns["id"]
    assert ids.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 10], [11, 12, 13, 14]]
    assert sample.columns["learned"].sum() == 15
    assert world.replay.counts.trained == 15
    assert world.replay.place == world.replay.taken == 15


def test_minibatches_of_whole_runs_have_each_of_them_once_in_a_pass() -> None:
    world = QueueWorld(whole_runs=True, first=True)
    for shorter in (0, 1, 0, 1):
        assert world.insert(1, STEPS - shorter)
    world.look()
    drawn = []
    for _ in range(4):
        world.replay.look()
        sample = world.replay.sample(BATCH)
        drawn.append(sample.columns["chosen"].reshape(-1, STEPS).copy())
        world.replay.done()
    for run_CT in drawn:
        assert (run_CT == run_CT[:, :1] + np.arange(STEPS)).all(), "the rows of a run, in order"
    runs = [run_CT[:, 0] // STEPS for run_CT in drawn]
    for one_pass in (runs[:2], runs[2:]):
        assert sorted(np.concatenate(one_pass).tolist()) == [0, 1, 2, 3]
    assert [run.tolist() for run in runs[:2]] != [run.tolist() for run in runs[2:]]
    assert sample.columns["memory"].tolist() == [[0, -1], [4, 3], [7, 6], [11, 10]]
    assert world.replay.counts.trained == world.replay.taken == 14


def test_a_minibatch_counts_once_it_is_done() -> None:
    world = QueueWorld()
    world.insert(2, STEPS)
    world.insert(2, STEPS)
    world.look()
    first = world.replay.sample(BATCH).columns["chosen"].tolist()
    assert world.replay.sample(BATCH).columns["chosen"].tolist() == first
    world.replay.done()
    assert world.replay.sample(BATCH).columns["chosen"].tolist() != first


def test_stale_runs_are_passed_over_and_counted_once() -> None:
    world = QueueWorld(max_lag=5)
    world.replay.begin(1, 100)
    world.step = 100
    for late in (0, 6, 5, 0, 9, 0):
        assert world.insert(1, STEPS, late)
    world.look()
    assert world.replay.counts.stale == 8
    assert not world.replay.wait_reason()
    assert world.replay.sample(BATCH).columns["version"][:, 0].tolist() == [100, 95, 100, 100]
    assert world.replay.taken == 24


def test_a_strict_block_is_of_the_model_that_was_published_last() -> None:
    world = QueueWorld(strict=True)
    world.insert(2, STEPS)
    world.published = (1, 1)
    assert world.insert(1, STEPS)  # of another version
    world.publish()
    world.insert(1, STEPS)
    world.look()
    assert world.replay.counts.stale == STEPS
    assert world.replay.lacking_runs == 1
    assert world.replay.wait_reason() == (
        "learner waits: 3 of 4 runs of version 0 (replay.strict) of the next block are there"
    )
    world.insert(2, STEPS)  # one too many: it waits for the next look, and is stale by then
    while world.learn():
        assert world.replay.lacking_runs == (0 if world.step < 4 else 4)
    assert world.step == 4
    assert world.replay.counts.stale == 2 * STEPS
    assert world.replay.counts.trained == 16


def test_rows_of_an_earlier_start_are_stale_but_in_a_block_that_its_checkpoint_has() -> None:
    world = QueueWorld(strict=True)
    world.insert(2, STEPS)
    world.look()
    world.hand_over()
    world.write()
    world.insert(1, STEPS)
    world.start()
    assert world.replay.rows_in_block == 2 * STEPS, "of the same weights"
    world.look()
    assert world.replay.counts.stale == STEPS
    world.insert(2, STEPS)
    while world.learn():
        pass
    assert world.replay.counts.trained == 16


def test_the_writer_waits_for_the_checkpoint_and_the_learner_makes_one() -> None:
    world = QueueWorld(passes=1)
    while world.insert(2, STEPS):
        world.check()
    assert world.ring.inserted == CAPACITY
    while world.learn():
        pass
    assert world.handed is not None, "a quarter of the capacity is behind"
    assert not world.insert(2, STEPS), "not before it is on the disk"
    world.write()
    assert world.insert(2, STEPS)


def test_rows_that_were_overwritten_end_the_run() -> None:
    world = QueueWorld()
    world.insert(2, STEPS)
    world.look()
    world.ring.keep_from(CAPACITY)
    while world.ring.inserted < CAPACITY + 8:
        world.insert(1, STEPS)
    with pytest.raises(QueueOverrunError, match="from 0 on"):
        world.replay.look()


def test_other_settings_give_up_a_block_that_was_begun() -> None:
    world = QueueWorld()
    for _ in range(3):
        world.insert(2, STEPS)
    world.learn()
    world.hand_over()
    world.write()
    world.passes = 1
    world.start()
    assert world.replay.counts.cut_short == 16
    assert world.replay.place == 16
    world.insert(2, STEPS)
    world.learn()
    assert world.replay.place == 16, "of a block of two minibatches"


def test_other_settings_take_a_block_again_that_was_not_begun() -> None:
    world = QueueWorld()
    world.insert(1, STEPS)
    world.look()
    world.hand_over()
    world.write()
    world.block = 8
    world.start()
    assert world.replay.counts.cut_short == 0
    assert world.replay.place == world.replay.taken == 0


def test_an_older_copy_of_the_ring_has_fewer_rows_than_the_checkpoint_knows() -> None:
    world = QueueWorld()
    for _ in range(4):
        world.insert(2, STEPS)
    while world.learn():
        pass
    world.hand_over()
    world.write()
    world.ring._inserted = 8
    world.start()
    assert world.replay.taken == world.replay.place == 8
    assert world.replay.counts.forgotten == world.replay.counts.trained - 8
    assert world.replay.save_is_due, "the checkpoint on the disk knows too much"


def test_stale_runs_within_a_block_that_is_taken_again_count_once() -> None:
    world = QueueWorld(max_lag=5)
    world.replay.begin(1, 100)
    world.step = 100
    for late in (9, 0, 9, 0):  # one is before the block
        assert world.insert(1, STEPS, late)
    world.look()
    assert world.replay.counts.stale == 8
    world.hand_over()
    world.write()
    world.block = 8
    world.start()
    assert world.replay.taken == 4
    assert world.replay.counts.stale == 4
    world.look()
    assert world.replay.counts.stale == 8
    assert not world.replay.wait_reason()


def test_a_disk_that_lied_gives_numbers_back_and_takes_the_new_rows() -> None:
    world = QueueWorld()
    for _ in range(4):
        world.insert(2, STEPS)
    while world.learn():
        pass
    world.hand_over()
    world.write()
    assert world.replay.taken == 32
    world.ring.lose_rows_from(12)
    world.insert(2, STEPS)
    world.insert(2, STEPS)
    world.insert(2, STEPS)  # 36 rows, and those from 12 on are new
    world.start()
    assert world.replay.taken == world.replay.place == 12
    assert world.replay.counts.forgotten == 20
    assert world.kept == 12
    world.look()
    assert world.replay._firsts == [12, 16, 20, 24]


def test_a_block_that_reaches_beyond_the_rows_that_are_left_is_given_up() -> None:
    world = QueueWorld()
    world.insert(2, STEPS)
    world.insert(2, STEPS)
    world.learn()
    world.hand_over()
    world.write()
    world.ring.lose_rows_from(10)
    world.insert(2, STEPS)
    world.start()
    assert world.replay.counts.cut_short == 16
    assert world.replay.counts.forgotten == 6
    assert world.replay.taken == world.replay.place == 10


def test_runs_that_are_longer_than_runs_are_now_are_cut() -> None:
    world = QueueWorld()
    config = world.replay.config.model_copy(update={"sequence": 3, "block": 24})
    rng = np.random.default_rng(0)
    replay = QueueReplay(world.ring, rng, config, batch_size=BATCH, batch_rows=12)
    replay.begin(1, 0)
    for _ in range(2):
        world.insert(2, STEPS)
    replay.look()
    assert replay._firsts == [0, 3, 4, 7, 8, 11, 12, 15]
    assert replay._lengths == [3, 1] * 4
    assert not replay.wait_reason()


SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ACTS = (
    *("insert", "insert", "insert", "learn", "learn", "learn", "look", "hand over", "write"),
    *("kill", "sync", "power", "fail"),
)


def play(world: QueueWorld, acts: list[tuple[str, int, int]]) -> None:
    for act, environments, steps in acts:
        match act:
            case "insert":
                world.insert(environments, steps)
            case "learn":
                world.learn()
            case "look":
                world.look()
            case "hand over":
                world.hand_over()
            case "write":
                world.write()
            case "kill":
                world.start()
            case "sync":
                world.sync()
            case "power":
                world.lose_power()
            case "fail":
                world.fail_step()
        world.check()
    world.check_drained()


SCHEDULES = st.lists(
    st.tuples(st.sampled_from(ACTS), st.integers(1, 3), st.integers(1, STEPS)), max_size=60
)


@SETTINGS
@given(SCHEDULES, st.sampled_from([(16, 2), (8, 1), (16, 3)]))
def test_every_row_of_the_surviving_history_is_drawn_as_often_as_configured(
    acts: list[tuple[str, int, int]], of_queue: tuple[int, int]
) -> None:
    play(QueueWorld(*of_queue), acts)


@SETTINGS
@given(SCHEDULES, st.sampled_from([(16, 2), (8, 1), (16, 3)]))
def test_every_strict_block_is_of_the_weights_that_it_begins_with(
    acts: list[tuple[str, int, int]], of_queue: tuple[int, int]
) -> None:
    """Whatever is killed and loses power in between; every fifth batch is an older model's."""
    world = QueueWorld(*of_queue, strict=True)
    world.late_each = 5
    play(world, acts)


@SETTINGS
@given(SCHEDULES)
def test_whole_runs_are_drawn_as_often_as_configured(acts: list[tuple[str, int, int]]) -> None:
    play(QueueWorld(whole_runs=True, first=True), acts)


@SETTINGS
@given(SCHEDULES)
def test_the_balance_holds_where_rows_become_stale(acts: list[tuple[str, int, int]]) -> None:
    play(QueueWorld(max_lag=3), acts)


def forget_pass(replay: QueueReplay) -> None:
    state = replay.get_state

    def get_state() -> dict[str, Any]:
        return {**state(), "minibatch": 0, "pass": 0}

    replay.get_state = get_state  # type: ignore[method-assign]


def forget_block(replay: QueueReplay) -> None:
    state = replay.get_state

    def get_state() -> dict[str, Any]:
        made = state()
        none = np.zeros(0, np.int64)
        return {**made, "firsts": none, "lengths": none, "full": False, "place": made["taken"],
                "pass": 0, "minibatch": 0}  # fmt: skip

    replay.get_state = get_state  # type: ignore[method-assign]


def another_permutation(replay: QueueReplay) -> None:
    state = replay.get_state

    def get_state() -> dict[str, Any]:
        return {**state(), "rng": replay.rng.bit_generator.state}

    replay.get_state = get_state  # type: ignore[method-assign]


def save_never(replay: QueueReplay) -> None:
    replay.needs_saves = False


MUTATIONS: dict[str, dict[str, Any]] = {
    "pass and minibatch are no state": {"mutate": forget_pass},
    "the block is no state": {"mutate": forget_block},
    "the generator's state is that behind the permutation": {"mutate": another_permutation},
    "kept is said when a state is handed over": {"says_at": "handed"},
    "a checkpoint is named before the disk has the rows that it knows of": {"syncs_first": False},
    "no checkpoint is asked for while both sides wait": {"mutate": save_never},
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_mutation_is_found(mutation: str) -> None:
    """By schedules of a fixed seed: hypothesis would shrink what is meant to fail."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        acts = [
            (str(rng.choice(ACTS)), int(rng.integers(1, 4)), int(rng.integers(1, STEPS + 1)))
            for _ in range(40)
        ]
        try:
            play(QueueWorld(**MUTATIONS[mutation]), acts)
        except (AssertionError, QueueOverrunError, ValueError):
            return
    raise AssertionError("no schedule finds it")
