"""Batches that are looked into together: the unsound ones are found, whoever stands beside them."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_protocol.column import Column
from vedette_protocol.messages import Batch
from vedette_protocol.schema import Schema
from vedette_rl.core.columns import SEQUENCE_KEYS, empty_columns, row_dtype
from vedette_rl.envs.spaces import ElementBounds, Spaces, column_bounds, transition_dtype
from vedette_rl.replay.rows import MemoryRing
from vedette_services.learner.gateway.intake import Intake
from vedette_services.run.replay_layout import ring_dtype

SCHEMA = Schema((Column("obs", "f4", (3,)), Column("action", "u1", (), 0, 3), Column("end", "?")))
ROWS = 4


def batch(seq: int, *, rows: int = ROWS, sound: bool = True, schema: Schema = SCHEMA) -> Batch:
    columns = {
        "obs": np.full((rows, 3), seq, np.float32),
        "action": np.full(rows, seq % 4, np.uint8),
        "end": np.zeros(rows, np.bool_),
    }
    if not sound:
        columns["obs"][-1, -1] = np.nan
    payload = bytes(SCHEMA.pack(columns, rows))
    return Batch("run", f"m{seq % 2}", 1, seq, seq % 3, 1, seq * 10, schema.hash, rows, payload)


def intake() -> Intake:
    return Intake(SCHEMA, ROWS, ROWS, {"m0": 5, "m1": 6}.__getitem__, None)


@given(st.lists(st.tuples(st.sampled_from([ROWS, ROWS, ROWS, 2]), st.booleans()), max_size=20))
def test_every_sound_batch_is_handed_on_and_no_other(sent: list[tuple[int, bool]]) -> None:
    held = intake()
    for seq, (rows, sound) in enumerate(sent):
        held.add(batch(seq, rows=rows, sound=sound))
    found = held.validate_held()
    expected = [seq for seq, (_, sound) in enumerate(sent) if sound]
    handed_on = [
        int(obs[0, 0])
        for block in found.blocks
        for obs in block.columns["obs"].reshape(block.batches, block.rows, 3)
    ]
    assert handed_on == expected
    assert [b.seq for b, _ in found.invalid] == [s for s in range(len(sent)) if s not in expected]
    assert found.rows_by_model == {(1, 10 * seq): sent[seq][0] for seq in expected}
    assert held.bytes == 0
    assert held.validate_held().blocks == []


def test_a_block_says_of_each_batch_who_made_it_and_with_which_version() -> None:
    held = intake()
    for seq in range(4):
        held.add(batch(seq))
    [block] = held.validate_held().blocks
    assert (block.batches, block.rows) == (4, ROWS)
    assert block.columns["version"].tolist() == [0, 10, 20, 30]
    assert block.columns["manager"].tolist() == [5, 6, 5, 6]
    assert block.columns["actor"].tolist() == [0, 1, 2, 0]
    assert block.columns["action"].tolist() == [[0] * 4, [1] * 4, [2] * 4, [3] * 4]


@pytest.mark.parametrize("count", [1, 3])
def test_rows_of_sequences_say_which_start_of_the_learner_made_their_model(count: int) -> None:
    row = row_dtype([(key.name, key.numpy_dtype, key.shape) for key in SEQUENCE_KEYS])
    schema = Schema.from_dtype(row, {key.name: key.bounds for key in SEQUENCE_KEYS if key.bounds})
    ring = MemoryRing(ring_dtype(row, epoch=True), 100)
    held = Intake(schema, ROWS, ROWS, lambda manager: 7, None)
    for seq in range(count):
        zeros = {name: np.zeros(ROWS, row[name]) for name in row.names or ()}
        payload = bytes(schema.pack(zeros, ROWS))
        held.add(Batch("run", "m", 1, seq, 0, 5 + seq, 10, schema.hash, ROWS, payload))
    for block in held.validate_held().blocks:
        block.append_to(ring)
    ring.commit()
    assert ring.columns["epoch"][: ring.inserted].tolist() == [
        5 + seq for seq in range(count) for _ in range(ROWS)
    ]


def test_large_payloads_are_not_copied_together() -> None:
    schema = Schema((Column("obs", "u1", (84, 84)),))
    held = Intake(schema, 16, 16, lambda manager: 0, None)
    payload = bytes(schema.payload_bytes(16))
    for seq in range(3):
        held.add(Batch("run", "m", 1, seq, 0, 1, 0, schema.hash, 16, payload))
    blocks = held.validate_held().blocks
    assert [block.batches for block in blocks] == [1, 1, 1]
    assert all(np.shares_memory(b.columns["obs"], np.frombuffer(payload, "u1")) for b in blocks)


@pytest.mark.parametrize(
    "wrong",
    [
        batch(1, rows=ROWS + 1),
        batch(1)._replace(schema="0" * 16),
        batch(1)._replace(payload=b"12345678"),
        batch(1, rows=2)._replace(rows=ROWS),
    ],
    ids=["rows", "schema", "bytes", "bytes of fewer rows"],
)
def test_a_batch_of_the_wrong_form_is_unsound_and_harms_no_other(wrong: Batch) -> None:
    held = intake()
    for one in (batch(0), wrong, batch(2), batch(3)):
        held.add(one)
    found = held.validate_held()
    assert [b.seq for b, _ in found.invalid] == [1]
    assert [block.batches for block in found.blocks] == [1, 2]


def test_blocks_are_appended_whether_of_one_batch_or_of_many() -> None:
    stored = [("version", "i8"), ("manager", "i4"), ("actor", "i4")]
    ring = MemoryRing(np.dtype([*SCHEMA.row_dtype.descr, *stored]), 100)
    held = intake()
    for seq, rows in enumerate([2, ROWS, ROWS, ROWS, 1]):
        held.add(batch(seq, rows=rows))
    for block in held.validate_held().blocks:
        block.append_to(ring)
    expected = [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]
    assert ring.pending == len(expected)
    assert ring.columns["obs"][: len(expected), 2].tolist() == expected
    assert ring.columns["version"][: len(expected)].tolist() == [10 * seq for seq in expected]
    assert ring.columns["manager"][: len(expected)].tolist() == [5 + seq % 2 for seq in expected]


def test_elements_have_ranges_of_their_own() -> None:
    """One range for a column let the action [0, 4] of MultiDiscrete([5, 2]) into the replay."""
    spaces = Spaces(
        gym.spaces.Dict({"gear": gym.spaces.MultiDiscrete([2, 5], start=[0, 1])}),
        gym.spaces.MultiDiscrete([5, 2]),
    )
    row = transition_dtype(spaces)
    schema = Schema.from_dtype(row, column_bounds(spaces))
    sound = {"obs/gear": [1, 5], "next_obs/gear": [0, 1], "action": [4, 1]}

    def reason(count: int, **changed: list[int]) -> str:
        held = Intake(schema, 2, 2, lambda manager: 0, ElementBounds(spaces))
        for seq in range(count):
            columns = empty_columns(row, 2)
            columns["n_steps"][:] = 1
            for name in ("reward", "terminated", "truncated"):
                columns[name][:] = 0
            for name, value in {**sound, **changed}.items():
                columns[name][:] = sound[name]
                columns[name][-1] = value
            payload = bytes(schema.pack(columns, 2))
            held.add(Batch("run", "m", 1, seq, 0, 1, 0, schema.hash, 2, payload))
        found = held.validate_held()
        return str(found.invalid[0].error) if found.invalid else ""

    for count in (1, 3):
        assert reason(count) == ""
        assert reason(count, action=[0, 4]) == "column 'action': 4 at [1] is outside 0 to 1"
        assert "next_obs/gear" in reason(count, **{"next_obs/gear": [4, 1]})


def test_an_action_far_beyond_its_box_is_refused_and_one_a_little_beyond_is_not() -> None:
    spaces = Spaces(gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-2.0, 2.0, (3,)))
    bounds = ElementBounds(spaces)
    assert bounds.fault({"action": np.array([[0.0, 2.5, -30.0]], np.float32)}) == ""
    assert "'action'" in bounds.fault({"action": np.array([[0.0, 1e25, 0.0]], np.float32)})
    endless = Spaces(gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-np.inf, np.inf, (3,)))
    assert ElementBounds(endless).fault({"action": np.full((1, 3), 1e30, np.float32)}) == ""
