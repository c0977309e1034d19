"""A learner and a manager of neighbouring releases: they speak version 2, with fewer or more keys.

The frames are written here by hand, as the first release of version 2 wrote them, and do not
follow `vedette_protocol`: what is here is never changed when a key is added there.
"""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest

from vedette_protocol.codec import decode_control, encode
from vedette_protocol.column import Column
from vedette_protocol.errors import VersionError
from vedette_protocol.messages import Run
from vedette_protocol.schema import Schema
from vedette_rl.replay.limiter import Limiter
from vedette_services.actors.connection import Identity
from vedette_services.actors.handover import FinishedBatch
from vedette_services.actors.instructions import Exit, Instruction, SendBatches, StartActor
from vedette_services.actors.manager_state import ManagerState
from vedette_services.learner.gateway.state import GatewayState, Position

RUN_ID = "20250102-cartpole"
MANAGER = "host-a"
INCARNATION = 0x0123456789ABCDEF
SCHEMA = Schema((Column("obs", "f4", (2,)), Column("reward", "f4")))
MODEL = Schema((Column("w", "f4", (3,)),))
ROWS = 4

# Of version 1, which was never released: recorded.
REPORT_1 = (
    "84a17601a16ba67265706f7274a76d616e61676572a6686f73742d61"
    "ab696e6361726e6174696f6ecf0123456789abcdef"
)
RUN_1 = (
    "86a17601a16ba372756ea372756eb132303235303130322d636172"
    "74706f6c65a565706f636802a76c6561726e6572cffedcba9876543210a47365656407"
)


def report_frames(*, new: bool, old: bool = False, **changes: Any) -> list[bytes]:
    """A report with the keys that every version-2 peer sends, and those of a later release."""
    header = {"v": 2, "k": "report", "manager": MANAGER, "incarnation": INCARNATION}
    actor = {"id": 0, "alive": True, "restarts": 0, "env_steps": 9, "episodes": 0, "version": 3}
    fields: dict[str, Any] = {"host": "a.example", "state": "running", "run": RUN_ID}
    counts = ("produced", "dropped", "window_batches", "window_rows", "window_bytes", "sequenced")
    fields |= dict.fromkeys(counts, 0)
    fields |= {"base": 0, "actors": [actor], "limit": 0, "features": []}
    if old:
        del fields["base"], fields["limit"], fields["features"]
    if new:
        header["trace"] = "a text"
        fields |= {"features": ["columns-by-name"], "gpu": {"name": "x", "list": [1]}}
        actor["frames"] = 7
    return [msgpack.packb(header), msgpack.packb(fields | changes)]


def batch_frames(seq: int, rows: int = ROWS, reward: float = 1.0) -> list[bytes]:
    columns = {"obs": np.zeros((rows, 2), np.float32), "reward": np.full(rows, reward, np.float32)}
    fields = {"v": 2, "k": "batch", "run": RUN_ID, "manager": MANAGER, "incarnation": INCARNATION}
    fields |= {"seq": seq, "base": 0, "actor": 0, "epoch": 1, "version": 3, "env_steps": rows}
    fields |= {"schema": SCHEMA.hash, "rows": rows}
    return [msgpack.packb(fields), bytes(SCHEMA.pack(columns, rows))]


def learner() -> GatewayState:
    free = Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=1)
    state = GatewayState(
        RUN_ID, 7, SCHEMA, stamp=b"", now=0.0, limiter=free, rows_per_batch=ROWS, elements=None
    )
    state.position = Position(epoch=1, version=10)
    state.announce_run(Run(RUN_ID, 1, 7, SCHEMA, MODEL, {}, {}, {}, 0, ROWS, ROWS))
    return state


def last_ack(state: GatewayState, now: float) -> dict[str, Any]:
    frames = state.acks_due(now, 0)[-1]
    assert frames[0] == b"m/host-a/"
    found: dict[str, Any] = msgpack.unpackb(bytes(frames[1]))
    return found


@pytest.mark.parametrize("peer", [{"new": False}, {"new": False, "old": True}, {"new": True}])
def test_a_manager_of_another_release_joins_sends_and_leaves(peer: dict[str, bool]) -> None:
    state = learner()
    [run] = state.on_subscription(b"\x01m/host-a/", b"")
    announced = msgpack.unpackb(bytes(run[2]))
    assert (announced["schema_hash"], announced["model_hash"]) == (SCHEMA.hash, MODEL.hash)
    assert (announced["batch_rows"], announced["batch_env_steps"]) == (ROWS, ROWS)
    assert announced["features"] == ["evaluate", "outbox"]
    state.on_samples(report_frames(**peer), 0.1)
    assert last_ack(state, 0.2)["limit"] > 3
    for seq, reward in enumerate((1.0, float("nan"), 1.0)):
        state.on_samples(batch_frames(seq, reward=reward), 0.3)
    assert sum(block.batches for block in state.blocks(0.3)) == 2
    ack = last_ack(state, 0.4)
    assert (ack["contiguous"], ack["rejected_batches"]) == (3, 1)
    assert "'reward'" in ack["rejected_reason"]
    done = {"state": "gone", "produced": 3 * ROWS, "sequenced": 3}
    state.on_samples(report_frames(**peer, **done), 0.5)
    accounting = state.ledger.accounting()
    assert (accounting.produced, accounting.inserted, accounting.env_steps) == (12, 8, 8)
    assert (state.garbage, state.fleet.present) == (0, [])


def run_frames(*, new: bool, old: bool) -> list[bytes]:
    header = {"v": 2, "k": "run", "run": RUN_ID, "epoch": 1, "learner": 7, "seed": 0}
    fields: dict[str, Any] = {"schema": SCHEMA.to_wire(), "model": MODEL.to_wire()}
    fields |= {"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}, "actors": {"n_buffer": ROWS}}
    fields |= {"batch_rows": ROWS, "batch_env_steps": ROWS}
    if not old:
        fields |= {"schema_hash": SCHEMA.hash, "model_hash": MODEL.hash, "features": []}
    if new:
        header["trace"] = "a text"
        fields |= {"features": ["columns-by-name"], "discounts": [0.9, {"a": 1}]}
    return [msgpack.packb(header), msgpack.packb(fields)]


def ack_frames(*, new: bool, old: bool, contiguous: int = 0) -> list[bytes]:
    fields = {"v": 2, "k": "ack", "run": RUN_ID, "epoch": 1, "learner": 7, "manager": MANAGER}
    fields |= {"incarnation": INCARNATION, "contiguous": contiguous, "extras": b""}
    fields |= {"rejected_batches": 0, "rejected_rows": 0, "limit": contiguous + 8, "version": 1}
    fields |= {"first_actor": 0}
    if not old:
        fields |= {"reason": "", "rejected_reason": ""}
    if new:
        fields |= {"lag_s": 0.5, "note": "a text"}
    return [msgpack.packb(fields)]


def manager() -> ManagerState:
    state = ManagerState(
        Identity(MANAGER, "a.example", "far:5555"),
        count=1,
        allow_import=(),
        incarnation=lambda: INCARNATION,
        jitter=lambda: 0.5,
        now=0.0,
    )
    state.on_connected(0.0)
    return state


def receive_control(state: ManagerState, frames: list[bytes], now: float) -> list[Instruction]:
    return state.on_control(decode_control(frames), now)


@pytest.mark.parametrize("peer", [(False, False), (False, True), (True, False)])
def test_a_manager_plays_for_a_learner_of_another_release(peer: tuple[bool, bool]) -> None:
    state = manager()
    (new, old) = peer
    receive_control(state, run_frames(new=new, old=old), 0.0)
    started = receive_control(state, ack_frames(new=new, old=old), 0.1)
    (start,) = (done for done in started if isinstance(done, StartActor))
    made = FinishedBatch(ROWS, 1, 3, bytes(SCHEMA.payload_bytes(ROWS)), env_steps=ROWS)
    (sent,) = state.on_batch(0, start.run, made, 0.2)
    assert isinstance(sent, SendBatches)
    header = msgpack.unpackb(bytes(encode(sent.batches[0])[0]))
    assert header == msgpack.unpackb(batch_frames(0)[0])
    receive_control(state, ack_frames(new=new, old=old, contiguous=1), 0.3)
    assert state.has_room_for(0)
    (refusal,) = receive_control(
        state,
        [
            msgpack.packb(
                {
                    "v": 2,
                    "k": "refusal",
                    "manager": MANAGER,
                    "incarnation": INCARNATION,
                    "code": "a-new-code",
                    "reason": "the learner is full",
                    "more": 1,
                }
            )
        ],
        0.4,
    )
    assert refusal == Exit(3, "refused by the learner: the learner is full")


def test_a_manager_of_version_1_is_refused_by_name() -> None:
    state = learner()
    state.on_samples([bytes.fromhex(REPORT_1), b"\x80"], 0.1)
    assert state.garbage == 1
    assert "speaks protocol version 1, this side speaks 2" in state.rejections.due_lines(2.0)[0]
    [[topic, frame]] = state.acks_due(0.2, 0)
    told = msgpack.unpackb(bytes(frame))
    assert topic == b"m/host-a/"
    # Version 1 looks at `v` first, and ends with a line of its own that names both versions.
    assert (told["v"], told["k"], told["code"]) == (2, "refusal", "version")


def test_a_learner_of_version_1_is_left_with_a_line_that_says_why() -> None:
    with pytest.raises(VersionError) as caught:
        decode_control([bytes.fromhex(RUN_1), b"\x80"])
    (left,) = manager().on_invalid_message(caught.value, 0.1)
    assert isinstance(left, Exit)
    assert left.code == 3
    assert "speaks protocol version 1, this side speaks 2: install the same release" in left.reason
