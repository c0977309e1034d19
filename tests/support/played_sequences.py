"""Steps of environments in a ring of rows, and a search over them for what follows what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import counting_rows
import numpy as np
from hypothesis import strategies as st
from kinds_of_rows import Kind
from numpy.typing import NDArray

from vedette_rl.core.columns import SEQUENCE_KEYS, Columns, row_dtype
from vedette_rl.replay.frame_ring import MemoryFrameRing
from vedette_rl.replay.frame_stacks import (
    FramePart,
    FrameStack,
    make_frame_ring_spec,
    stored_row,
)
from vedette_rl.replay.manifest import SharedSpec
from vedette_rl.replay.rows import MemoryRing

STEPS, BURN_IN = 3, 2
GUARD = 6

DTYPE = row_dtype(
    [
        ("obs", np.dtype("<f4"), (2,)),
        ("reward", np.dtype("<f4"), ()),
        ("next_obs", np.dtype("<f4"), (2,)),
        ("memory", np.dtype("<f4"), (3,)),
        *((key.name, key.numpy_dtype, ()) for key in SEQUENCE_KEYS),
        ("terminated", np.dtype(bool), ()),
        ("truncated", np.dtype(bool), ()),
        ("version", np.dtype("<i8"), ()),
        ("manager", np.dtype("<i4"), ()),
        ("actor", np.dtype("<i4"), ()),
    ]
)
FRAMES = FrameStack(1, (FramePart("", np.dtype("<f4"), (2,)),))
STORED_ONCE = stored_row(DTYPE, FRAMES)


class Row(NamedTuple):
    """A step of an environment."""

    stream: tuple[int, int, int]
    t: int
    begins: bool = False
    ended: bool = False


@dataclass
class Model:
    """The rows that there were, and a search over them."""

    steps: int = STEPS
    burn_in: int = BURN_IN
    rows: list[Row] = field(default_factory=list)

    def newest(self, oldest: int, inserted: int) -> dict[tuple[tuple[int, int, int], int], int]:
        """The newest live row of each key."""
        return {
            (self.rows[number].stream, self.rows[number].t): number
            for number in range(oldest, inserted)
        }

    def follows(self, before: Row, after: Row) -> bool:
        return not before.ended and not after.begins

    def complete(self, oldest: int, inserted: int) -> dict[int, tuple[list[int], int]]:
        """The window of each complete beginning, and the row by which it is complete."""
        newest = self.newest(oldest, inserted)
        found: dict[int, tuple[list[int], int]] = {}
        for (stream, t), number in newest.items():
            window = [number]
            proof: list[int] = []
            while len(window) < self.steps and not self.rows[window[-1]].ended:
                after = newest.get((stream, t + len(window)))
                if after is None:
                    break
                if not self.follows(self.rows[window[-1]], self.rows[after]):
                    proof = [after]
                    break
                window.append(after)
            if len(window) == self.steps or self.rows[window[-1]].ended or proof:
                found[number] = (window, max(window + proof))
        return found

    def burned(self, number: int, oldest: int, inserted: int) -> list[int]:
        """The rows of burn-in before a beginning."""
        newest = self.newest(oldest, inserted)
        stream, t = self.rows[number].stream, self.rows[number].t
        burned: list[int] = []
        while len(burned) < self.burn_in:
            before = newest.get((stream, t - 1 - len(burned)))
            first = burned[0] if burned else number
            if before is None or not self.follows(self.rows[before], self.rows[first]):
                break
            burned.insert(0, before)
        return burned


def new_ring(capacity: int, *, once: bool = False, guard: int = GUARD) -> MemoryRing:
    """An empty ring, in which observations lie whole or once."""
    if not once:
        return MemoryRing(DTYPE, capacity, guard=guard)
    return MemoryFrameRing(STORED_ONCE, capacity, frames_shared(capacity, guard), guard=guard)


def insert(ring: Any, rows: Sequence[Row]) -> None:
    """Insert rows, in as few batches as the ring takes; `ring` is one that is written to."""
    rows = list(rows)
    while rows:
        part = rows[: ring.room]
        rows = rows[len(part) :]
        columns = columns_of(part, ring.inserted)
        if "frames" in getattr(ring, "frames", {}):
            columns = with_frames(columns)
        ring.append(columns, len(part))
        ring.commit()


def with_frames(columns: Columns) -> Columns:
    """Rows with places of frames in place of their observations."""
    rows = len(columns["obs"])
    at = np.arange(rows, dtype=np.uint32)
    frames = np.concatenate([columns["obs"], columns["next_obs"]])
    return {**columns, "frames": frames, "obs": at, "next_obs": at + np.uint32(rows)}


def columns_of(rows: Sequence[Row], first: int = 0) -> Columns:
    """The columns of rows, of which the first has this number."""
    streams = np.array([row.stream for row in rows], np.int64).reshape(-1, 3)
    time = np.array([row.t for row in rows], np.int64)
    ended = np.array([row.ended for row in rows], np.bool_)
    odd = time % 2 == 1
    number = np.arange(first, first + len(rows))
    return {
        "obs": obs_of(streams, time),
        "reward": number.astype(np.float32),
        "next_obs": obs_of(streams, time + 1),
        "memory": np.repeat(number.astype(np.float32)[:, None], 3, 1),
        "version": number,
        "manager": streams[:, 0].astype(np.int32),
        "actor": streams[:, 1].astype(np.int32),
        "env": streams[:, 2].astype(np.uint32),
        "t": time,
        "begins": np.array([row.begins for row in rows], np.bool_),
        "terminated": ended & odd,
        "truncated": ended & ~odd,
    }


def obs_of(streams: NDArray[Any], time: NDArray[Any]) -> NDArray[np.float32]:
    """What environments show at these times."""
    stream = streams[:, 0] * 100 + streams[:, 1] * 10 + streams[:, 2]
    return np.stack([stream, time], 1).astype(np.float32)


def steps_from(t: int, count: int, stream: tuple[int, int, int] = (0, 0, 0)) -> list[Row]:
    """Steps of one episode that goes on."""
    return [Row(stream, t + k) for k in range(count)]


STREAMS = st.sampled_from([(0, 0, 0), (0, 0, 1), (1, 0, 0)])


@st.composite
def histories(draw: st.DrawFn) -> list[list[Row]]:
    """Batches of steps: in any order, with lost ones and repeated keys."""
    batches: list[list[Row]] = []
    for _ in range(draw(st.integers(1, 14))):
        stream = draw(STREAMS)
        first = draw(st.integers(0, 10))
        flags = draw(st.lists(st.sampled_from("....be"), min_size=1, max_size=5))
        batches.append(
            [
                Row(stream, first + k, begins=flag == "b", ended=flag == "e")
                for k, flag in enumerate(flags)
            ]
        )
    return batches


@st.composite
def plays(draw: st.DrawFn) -> list[list[Row]]:
    """Batches of environments that play on: mostly in order, some later and some lost."""
    sent: list[tuple[float, list[Row]]] = []
    for stream in ((0, 0, 0), (0, 0, 1), (1, 0, 0)):
        begins = True
        t = 0
        for number in range(draw(st.integers(0, 8))):
            rows = []
            for _ in range(draw(st.integers(1, 4))):
                ended = draw(st.integers(0, 5)) == 0
                rows.append(Row(stream, t, begins, ended))
                begins = ended
                t += 1
            late = draw(st.sampled_from([0.0, 0.0, 0.0, 1.5, 4.5]))
            if draw(st.integers(0, 7)):
                sent.append((number + late, rows))
    return [rows for _, rows in sorted(sent, key=lambda each: each[0])]


# Rows by number


def row_of(number: int) -> Row:
    """A step of one of three environments, of which some steps are lost."""
    turn, env = divmod(number, 3)
    t = turn + turn // 50
    return Row((0, 0, env), t, begins=t % 9 == 0, ended=t % 9 == 8)


def batch_of(first: int, rows: int) -> Columns:
    """The rows from a number on."""
    return columns_of([row_of(number) for number in range(first, first + rows)], first)


def batch_with_frames(first: int, rows: int) -> Columns:
    """The same, as a ring is given them in which observations lie once."""
    return with_frames(batch_of(first, rows))


def assert_is_rows(columns: Columns, numbers: NDArray[Any]) -> None:
    """Every value is the one of its row's number."""
    expected = columns_of([row_of(number) for number in numbers.tolist()])
    number = {"version": numbers, "reward": numbers, "memory": np.repeat(numbers[:, None], 3, 1)}
    for name, column in {**expected, **number}.items():
        np.testing.assert_array_equal(columns[name], column, err_msg=name)


def frames_shared(capacity: int, guard: int) -> SharedSpec:
    """The ring of frames beside so many rows."""
    return make_frame_ring_spec(FRAMES, capacity, guard=guard, extra_frames=guard, rows_per_batch=8)


SEQUENCE_KINDS = {
    "rows": Kind(DTYPE, None, batch_of, assert_is_rows, counting_rows.stamp),
    "frames": Kind(
        STORED_ONCE, frames_shared(200, 40), batch_with_frames, assert_is_rows, counting_rows.stamp
    ),
}
"""Rings of steps that say by their values which they are."""
