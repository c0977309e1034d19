"""The gateway of a queue: its credit, its room, and the marks of runs."""

from __future__ import annotations

import numpy as np
import pytest
from test_gateway_state import batch_frames, gateway, report_frames, state_batch

from vedette_protocol.codec import decode_control, decode_up, encode
from vedette_protocol.messages import Ack, Batch, Run
from vedette_protocol.schema import Schema
from vedette_rl.core import row_dtype
from vedette_rl.core.columns import SEQUENCE_KEYS
from vedette_rl.replay.rows import MemoryRing
from vedette_services.learner.gateway.flow_control import QueueLimiter
from vedette_services.learner.gateway.intake import Intake
from vedette_services.learner.gateway.run_grants import RunGrants
from vedette_services.learner.gateway.state import GatewayState, QueuePlace
from vedette_services.run.replay_layout import ring_dtype

BATCH_ROWS = 4


def limiter(ahead: int = 0) -> QueueLimiter:
    return QueueLimiter(capacity=100, block=16, batch_rows=BATCH_ROWS, ahead=ahead)


def test_the_next_block_and_a_batch_may_come_and_no_more() -> None:
    made = limiter()
    made.follow(taken=32, kept=32)
    assert made.insertable_samples(32, 0) == 20
    assert made.insert_wait_reason(48, 0) == "", "a batch that may make the block whole"
    assert made.insert_wait_reason(49, 0) == (
        "actors wait for the learner: 17 rows wait for it (the next block, and replay.ahead=0)"
    )
    ahead = limiter(ahead=8)
    ahead.follow(taken=32, kept=32)
    assert ahead.insertable_samples(32, 0) == 28


def test_rows_wait_for_a_checkpoint() -> None:
    made = limiter(ahead=1000)
    assert made.insert_wait_reason(0, 0) == "actors wait: the learner is starting"
    assert made.insertable_samples(0, 0) == 0
    made.follow(taken=90, kept=20)
    assert made.insert_wait_reason(116, 0) == ""
    assert made.insert_wait_reason(117, 0) == (
        "actors wait for a checkpoint: rows from 20 on may not be overwritten before one has them"
    )
    assert made.insertable_samples(200, 0) == 0


def settled(state: GatewayState) -> int:
    return state.ledger.account("m", 5).contiguous


def test_a_batch_without_room_is_not_settled_and_comes_again() -> None:
    state = gateway()
    state.limit_room(6)
    state.on_samples(batch_frames(0), 1.0)
    state.on_samples(batch_frames(1), 1.0)
    assert [block.rows for block in state.blocks(1.0)] == [4]
    assert settled(state) == 1
    assert state.refused_credit == 1
    state.on_samples(report_frames(produced=8, window_rows=4), 1.1)
    assert state.accounting().in_flight == 4, "reports are read on"
    state.limit_room(6)
    state.on_samples(batch_frames(1), 1.2)
    assert len(state.blocks(1.2)) == 1
    assert settled(state) == 2


def test_a_duplicate_needs_no_room_and_a_batch_of_too_many_rows_is_rejected() -> None:
    state = gateway()
    state.limit_room(4)
    state.on_samples(batch_frames(0), 1.0)
    state.on_samples(batch_frames(0), 1.0)
    assert state.refused_credit == 0
    state.on_samples(batch_frames(1, rows=9), 1.0)
    assert len(state.blocks(1.0)) == 1
    assert settled(state) == 2
    assert state.accounting().rejected > 0


def test_a_manager_that_is_heard_for_the_first_time_needs_room_too() -> None:
    state = gateway(admitted=())
    state.limit_room(0)
    state.on_samples(batch_frames(0), 1.0)
    assert state.blocks(1.0) == []
    assert state.refused_credit == 1


def test_credit_ends_with_the_runs_environment_steps() -> None:
    made = limiter()
    made.follow(taken=0, kept=0)
    state = gateway(made, max_env_steps=4)
    state.limit_room(100)
    state.on_samples(state_batch(0, env_steps=4), 1.0)
    state.blocks(1.0)
    state.on_place(QueuePlace(4, 4))
    acks = [decode_control(frames[1:]) for frames in state.acks_due(2.0, 4)]
    assert [ack.reason for ack in acks if isinstance(ack, Ack)] == [
        "all environment steps are played: the learner learns from the last"
    ]


def strict_batch(seq: int, actor: int, version: int) -> list[bytes]:
    message = decode_up(batch_frames(seq))
    assert isinstance(message, Batch)
    return [bytes(frame) for frame in encode(message._replace(actor=actor, version=version))]


def test_acks_of_a_strict_run_name_the_newest_model_and_the_runs_on_it() -> None:
    made = limiter()
    made.follow(taken=0, kept=0)
    state = gateway(made, run_grants=RunGrants(envs_per_actor=1, block_runs=3, now=0.0))
    state.limit_room(100)

    def acked(now: float, inserted: int) -> list[tuple[int, int]]:
        acks = [decode_control(frames[1:]) for frames in state.acks_due(now, inserted)]
        return [(ack.version, ack.runs) for ack in acks if isinstance(ack, Ack)]

    assert acked(1.0, 0) == [(10, 0)], "there is no model"
    run = Run(state.run_id, 1, 7, state.schema, state.schema, {}, {}, {}, 0, 4, 4)
    state.on_model(run, 40, 1.0)
    assert acked(1.5, 0) == [(40, 1)], "for two actors"
    for seq in range(2):
        state.on_samples(strict_batch(seq, actor=seq, version=40), 2.0)
    state.blocks(2.0)
    state.on_place(QueuePlace(4, 0, lacking=1, model=(1, 40)))
    assert acked(2.3, 8) == [(40, 1)], "the trainer has not seen the last batch"
    assert state.status(MemoryRing(np.dtype([("x", "i8")]), 10), 0, 2.3).limiter_reason == (
        "actors wait for the model behind version 40: the learner learns from its block "
        "(replay.strict)"
    )
    state.on_place(QueuePlace(8, 0, lacking=0, model=(1, 47)))
    state.on_progress(47, 0)
    assert acked(2.6, 8) == [(40, 1)], "it learns"
    state.on_place(QueuePlace(8, 0, lacking=1, model=(1, 40)))
    assert acked(2.7, 8) == [(40, 2)], "at once"
    state.on_model(run, 48, 3.0)
    assert acked(3.1, 8) == [(48, 1)]


@pytest.mark.parametrize("count", [1, 3])
def test_runs_are_marked_in_each_batch(count: int) -> None:
    row = row_dtype([(key.name, key.numpy_dtype, key.shape) for key in SEQUENCE_KEYS])
    schema = Schema.from_dtype(row, {key.name: key.bounds for key in SEQUENCE_KEYS if key.bounds})
    ring = MemoryRing(ring_dtype(row, epoch=True, runs=True), 100)
    held = Intake(schema, 6, 6, lambda manager: 7, None, run_length=2)
    columns = {
        "env": np.array([0, 0, 0, 1, 1, 1], np.uint32),
        "t": np.array([5, 6, 7, 1, 3, 4]),
        "begins": np.zeros(6, bool),
    }
    for seq in range(count):
        payload = bytes(schema.pack(columns, 6))
        held.add(Batch("run", "m", 1, seq, 0, 1, 10, schema.hash, 6, payload))
    for block in held.validate_held().blocks:
        block.append_to(ring)
    ring.commit()
    marks = ring.columns["run"][: ring.inserted].astype(int).tolist()
    assert marks == [1, 0, 1, 1, 1, 0] * count


def test_room_is_given_in_the_order_in_which_managers_were_refused() -> None:
    state = gateway(admitted=("m", "n"))
    state.limit_room(0)
    state.on_samples(batch_frames(0, manager="n"), 1.0)
    state.limit_room(4)
    state.on_samples(batch_frames(0), 1.1)
    assert state.blocks(1.1) == [], "it is kept for the other, whose batch comes again"
    state.on_samples(batch_frames(0, manager="n"), 6.0)
    assert len(state.blocks(6.0)) == 1
    state.limit_room(4)
    state.on_samples(batch_frames(0), 6.1)
    assert len(state.blocks(6.1)) == 1


def test_room_is_not_kept_for_a_manager_that_does_not_come_again() -> None:
    state = gateway(admitted=("m", "n"))
    state.limit_room(0)
    state.on_samples(batch_frames(0, manager="n"), 1.0)
    state.limit_room(4)
    state.on_samples(batch_frames(0), 9.5)
    assert len(state.blocks(9.5)) == 1
