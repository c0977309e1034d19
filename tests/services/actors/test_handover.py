"""Batches over shared memory, between two ends in one process and from a child that dies."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from vedette_protocol.schema import Schema
from vedette_services.actors.batching import TransitionBatcher, WholeRows
from vedette_services.actors.handover import (
    AllowedRuns,
    HandoverReader,
    HandoverWriter,
    LocalHandover,
    SlotLayout,
)
from vedette_services.config.parts import ActorsConfig
from vedette_services.errors import HandoverError

ROW = np.dtype([("obs", "<f4", (3,)), ("flag", "?"), ("reward", "<f4")])
SCHEMA = Schema.from_dtype(ROW)
N_BUFFER = 5
SLOTS = 2


@pytest.fixture
def ends() -> Iterator[tuple[HandoverReader, HandoverWriter]]:
    reader = HandoverReader(SlotLayout(SCHEMA, N_BUFFER), SLOTS)
    memory, channel = reader.pass_fds
    writer = HandoverWriter(os.dup(memory), os.dup(channel), SlotLayout(SCHEMA, N_BUFFER), SLOTS)
    reader.close_child_ends()
    yield reader, writer
    writer.close()
    reader.close()


def test_an_actor_reads_how_many_runs_it_may_play(
    ends: tuple[HandoverReader, HandoverWriter],
) -> None:
    reader, writer = ends
    assert writer.allowed_runs == AllowedRuns(0, 0, 0)
    publish(writer, 0, N_BUFFER)
    publish(writer, N_BUFFER, N_BUFFER)
    reader.allow_runs(AllowedRuns(2, 1 << 40, 3))
    assert writer.allowed_runs == AllowedRuns(2, 1 << 40, 3)
    reader.poll()
    for first in (0, N_BUFFER):
        batch = reader.receive()
        assert rewards(batch.payload, batch.rows) == list(range(first, first + N_BUFFER))


def rows(first: int, count: int) -> dict[str, np.ndarray]:
    numbers = np.arange(first, first + count, dtype=np.float32)
    return {
        "obs": np.repeat(numbers[:, None], 3, axis=1),
        "flag": numbers % 2 == 0,
        "reward": numbers,
    }


def publish(
    writer: HandoverWriter | LocalHandover, first: int, count: int, version: int = 1
) -> None:
    for name, column in rows(first, count).items():
        writer.columns[name][:count] = column
    writer.publish(count, 7, version)


def rewards(payload: bytes, count: int) -> list[float]:
    return SCHEMA.views(payload, count)["reward"].tolist()


def test_a_full_batch_arrives_as_it_was_written(
    ends: tuple[HandoverReader, HandoverWriter],
) -> None:
    reader, writer = ends
    publish(writer, 10, N_BUFFER, version=3)
    reader.poll()
    assert reader.ready_batches == 1
    batch = reader.receive()
    assert (batch.rows, batch.epoch, batch.version) == (N_BUFFER, 7, 3)
    for name, column in rows(10, N_BUFFER).items():
        np.testing.assert_array_equal(SCHEMA.views(batch.payload, N_BUFFER)[name], column)


def test_a_partial_batch_is_laid_out_for_its_own_rows(
    ends: tuple[HandoverReader, HandoverWriter],
) -> None:
    reader, writer = ends
    publish(writer, 20, 2)
    reader.poll()
    batch = reader.receive()
    assert len(batch.payload) == SCHEMA.payload_bytes(2)
    for name, column in rows(20, 2).items():
        np.testing.assert_array_equal(SCHEMA.views(batch.payload, 2)[name], column)


def test_a_slot_is_free_again_only_after_it_was_taken(
    ends: tuple[HandoverReader, HandoverWriter],
) -> None:
    reader, writer = ends
    for first in (0, 10):
        publish(writer, first, N_BUFFER)
    assert not writer.has_slot
    reader.poll()
    assert rewards(reader.receive().payload, N_BUFFER)[0] == 0
    assert not writer.has_slot
    writer.poll(1.0)
    assert writer.has_slot
    publish(writer, 20, N_BUFFER)
    reader.poll()
    assert [rewards(reader.receive().payload, N_BUFFER)[0] for _ in range(2)] == [10, 20]


def test_a_queue_that_its_manager_does_not_empty_grows_no_further() -> None:
    queue = LocalHandover(SlotLayout(SCHEMA, N_BUFFER), 64)

    def fill() -> int:
        count = 0
        while queue.has_slot:
            publish(queue, count, 1)
            count += 1
        return count

    def receive_and_wait(takes: int) -> None:
        for _ in range(takes):
            queue.receive()
        queue.wait_for_wakeup(0.0, 0.0)

    receive_and_wait(0)  # nothing was there
    publish(queue, 0, 1)
    receive_and_wait(1)  # nobody waited for room
    assert fill() == 16
    receive_and_wait(16)
    assert fill() == 32
    receive_and_wait(32)
    assert fill() == 64
    receive_and_wait(64)
    assert fill() == 64
    receive_and_wait(60)  # as many as there is credit for
    assert fill() == 12
    receive_and_wait(1)
    assert fill() == 1
    queue.close()


def test_orders_reach_the_actor(ends: tuple[HandoverReader, HandoverWriter]) -> None:
    reader, writer = ends
    reader.announce_model()
    writer.poll(1.0)
    assert writer.model_announced
    assert not writer.stopped
    reader.order_stop()
    writer.poll(1.0)
    assert writer.stopped
    assert not writer.gone


def test_an_actor_notices_that_its_manager_is_gone(
    ends: tuple[HandoverReader, HandoverWriter],
) -> None:
    reader, writer = ends
    reader.close()
    writer.poll(1.0)
    assert writer.stopped
    assert writer.gone
    publish(writer, 0, N_BUFFER)  # raises nothing


def test_nonsense_in_a_slot_is_not_believed(ends: tuple[HandoverReader, HandoverWriter]) -> None:
    reader, writer = ends
    writer.publish(N_BUFFER, 1 << 40, 0)
    writer._memory[0] = 200  # rows
    reader.poll()
    with pytest.raises(HandoverError, match="200 rows, expected 1 to 5"):
        reader.receive()
    reader.discard()
    assert reader.ready_batches == 0


def test_a_killed_actor_loses_only_the_batch_it_was_writing() -> None:
    reader = HandoverReader(SlotLayout(SCHEMA, N_BUFFER), SLOTS)
    memory, channel = reader.pass_fds
    child = os.fork()
    if child == 0:  # write one batch, half of another, and die
        writer = HandoverWriter(memory, channel, SlotLayout(SCHEMA, N_BUFFER), SLOTS)
        publish(writer, 30, N_BUFFER)
        writer.columns["reward"][:2] = 99
        os.kill(os.getpid(), signal.SIGKILL)
    reader.close_child_ends()
    os.waitpid(child, 0)
    assert select.select([reader], [], [], 5.0)[0]
    reader.poll()
    assert reader.ended
    assert reader.ready_batches == 1
    assert rewards(reader.receive().payload, N_BUFFER)[0] == 30
    assert reader.ready_batches == 0
    reader.close()


class ListOfSlots:
    """Slots that are always free."""

    def __init__(self) -> None:
        self.columns = rows(0, N_BUFFER)
        self.batches: list[tuple[list[float], int, int]] = []
        self.env_steps: list[int] = []

    def publish(
        self, rows: int, epoch: int, version: int, entries: int = 0, env_steps: int = 0
    ) -> None:
        self.batches.append((self.columns["reward"][:rows].tolist(), epoch, version))
        self.env_steps.append(env_steps)


def test_rows_of_a_step_straddle_batches_and_none_is_lost() -> None:
    slots = ListOfSlots()
    batching = TransitionBatcher(slots, N_BUFFER, lambda: True, WholeRows())
    batching.push(rows(0, 3), (1, 10))
    batching.push(rows(3, 0), (1, 10))
    batching.push(rows(3, 9), (1, 11))
    batching.flush()
    batching.flush()
    assert [batch[0] for batch in slots.batches] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [10, 11],
    ]


def test_a_batch_carries_the_oldest_model_behind_its_rows() -> None:
    slots = ListOfSlots()
    batching = TransitionBatcher(slots, N_BUFFER, lambda: True, WholeRows())
    batching.push(rows(0, 4), (1, 90))
    batching.push(rows(4, 2), (2, 5))  # a restarted learner counts on from its checkpoint
    batching.push(rows(6, 4), (2, 6))
    assert [batch[1:] for batch in slots.batches] == [(1, 90), (2, 5)]


def test_rows_are_given_up_where_no_slot_will_ever_be_free() -> None:
    slots = ListOfSlots()
    TransitionBatcher(slots, N_BUFFER, lambda: False, WholeRows()).push(rows(0, 3), (1, 1))
    assert slots.batches == []


def test_a_batch_carries_the_environment_steps_since_the_one_before_whatever_became_rows() -> None:
    slots = ListOfSlots()
    batching = TransitionBatcher(slots, N_BUFFER, lambda: True, WholeRows())
    for steps, count in ((3, 0), (6, 4), (9, 3), (12, 5), (14, 0)):
        batching.env_steps = steps  # the first rows come late, and some steps make none
        if count:
            batching.push(rows(0, count), (1, 1))
    batching.flush()
    assert slots.env_steps == [9, 3, 2]
    assert sum(slots.env_steps) == 14


def test_steps_beyond_what_a_batch_may_carry_count_with_the_next() -> None:
    slots = ListOfSlots()
    batching = TransitionBatcher(slots, N_BUFFER, lambda: True, WholeRows(), env_steps_max=12)
    for steps in (30, 32, 34):
        batching.env_steps = steps
        batching.push(rows(0, N_BUFFER), (1, 1))
    assert slots.env_steps == [12, 12, 10]


@pytest.mark.parametrize(("n_step", "envs"), [(1, 1), (1, 8), (3, 8), (5, 2)])
def test_the_bound_of_a_run_leaves_room_for_what_its_n_step_actors_do(
    n_step: int, envs: int
) -> None:
    """Rows begin with a step and come out up to `n_step` steps later."""
    actors = ActorsConfig(n_buffer=N_BUFFER, envs_per_actor=envs)
    slots = ListOfSlots()
    rng = np.random.default_rng(envs)
    batching = TransitionBatcher(slots, N_BUFFER, lambda: True, WholeRows())
    unfinished = 0
    for _ in range(400):
        batching.env_steps += envs
        unfinished += envs
        done = unfinished if rng.random() < 0.2 else max(0, unfinished - envs * (n_step - 1))
        unfinished -= done
        if done:
            batching.push(rows(0, done), (1, 1))
    assert sum(slots.env_steps) >= batching.env_steps - 2 * envs * n_step - N_BUFFER
    assert max(slots.env_steps) <= actors.env_steps_max(n_step)
