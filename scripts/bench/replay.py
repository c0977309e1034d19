"""The replay beside plain numpy arrays: inserting, and drawing uniformly and by priority.

All is measured in one process, in turn within every round. Plain numpy is the bound: slices of
preallocated arrays in, ``numpy.take`` into preallocated arrays out. It supports no reader beside
the writer, survives no kill, and keeps no order.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from bench.measuring import ratio_of_rounds, summarize_rounds
from vedette_rl.core import Columns, empty_columns
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.mixed import MixedReplay, Source
from vedette_rl.replay.prioritized import PrioritizedReplay, open_priorities
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.run.replay_layout import ring_dtype

_COMMIT_EVERY = 16  # batches: the gateway commits once for all that has come meanwhile
_LOOK_EVERY = 32  # calls between two looks at the clock

TWO = "two_sources"
"""Half of a batch from the ring on disk, and half from one of a fifth of its size."""


def vector_dtype() -> np.dtype[Any]:
    """Return the row that is stored for observations of four numbers and two actions."""
    box = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    return ring_dtype(transition_dtype(Spaces(box, gym.spaces.Discrete(2))))


@dataclass(frozen=True, slots=True)
class ReplayBench:
    """Measures the rings in memory and on disk, and plain arrays.

    Args:
        capacity: rows.
        rows_in: rows of a batch inserted.
        rows_out: rows of a sample drawn.
        seconds: of each measurement.
        rounds: each measures everything once. Many short ones, so that other load on the machine
            disturbs all alike.
        directory: where the ring on disk is made; None: in the place for temporary files.
        row: a row's columns; None: `vector_dtype`.
    """

    capacity: int = 100_000
    rows_in: int = 64
    rows_out: int = 256
    seconds: float = 0.05
    rounds: int = 31
    directory: Path | None = None
    row: np.dtype[Any] | None = None

    def run(self) -> dict[str, Any]:
        """Measure in turn; rows a second, and ratios to plain numpy."""
        row = vector_dtype() if self.row is None else self.row
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="vedette-bench-") as place:
            measures = self._measures(row, Path(place))
            rates: dict[str, dict[str, list[float]]] = {}
            for _ in range(self.rounds):
                for (group, name), (work, rows) in measures.items():
                    rates.setdefault(group, {}).setdefault(name, []).append(
                        rows * calls_per_s(work, self.seconds)
                    )
        rates["prioritized"]["numpy"] = rates["sample"]["numpy"]
        return {
            "capacity": self.capacity,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "row_bytes": row.itemsize,
            "rounds": self.rounds,
            **{group: _compared(rates_by_kind) for group, rates_by_kind in rates.items()},
        }

    def _measures(
        self, row: np.dtype[Any], place: Path
    ) -> dict[tuple[str, str], tuple[Callable[[], object], int]]:
        """Return each call and its rows, by group (insert, sample, prioritized) and ring."""
        batch = _random_rows(row, self.rows_in)
        memory = MemoryRing(row, self.capacity)
        mapped = RingWriter.open(place / "replay", row, self.capacity, run_id="bench")
        plain = _PlainArrays(row, self.capacity)
        inserts: dict[str, Callable[[], None]] = {
            "numpy": lambda: plain.insert(batch, self.rows_in),
            "memory": _inserting(memory, batch, self.rows_in),
            "mapped": _inserting(mapped, batch, self.rows_in),
        }
        for insert in inserts.values():  # full, and every page touched
            for _ in range(_COMMIT_EVERY * (self.capacity // (_COMMIT_EVERY * self.rows_in) + 2)):
                insert()
        reader = RingReader(place / "replay")
        uniform = {
            "memory": UniformReplay(memory, np.random.default_rng(0)),
            "mapped": UniformReplay(reader, np.random.default_rng(0)),
        }
        by_priority = {
            "memory": PrioritizedReplay(memory, np.random.default_rng(1), ReplayConfig()),
            "mapped": PrioritizedReplay(
                reader, np.random.default_rng(1), ReplayConfig(), memory=open_priorities(reader)
            ),
        }
        two = self._two_sources(row, place, reader)
        errors = np.random.default_rng(2).random(self.rows_out, np.float32)
        work_and_rows: dict[tuple[str, str], tuple[Callable[[], object], int]] = {}
        for name, insert in inserts.items():
            work_and_rows["insert", name] = insert, self.rows_in
        work_and_rows["sample", "numpy"] = partial(plain.sample, self.rows_out), self.rows_out
        for name, replay in uniform.items():
            work_and_rows["sample", name] = partial(replay.sample, self.rows_out), self.rows_out
        for name, prioritized in by_priority.items():
            work = _drawing_by_priority(prioritized, self.rows_out, errors)
            work_and_rows["prioritized", name] = work, self.rows_out
        work_and_rows["sample", TWO] = partial(two["sample"].sample, self.rows_out), self.rows_out
        work = _drawing_by_priority(two["prioritized"], self.rows_out, errors)
        work_and_rows["prioritized", TWO] = work, self.rows_out
        return work_and_rows

    def _two_sources(
        self, row: np.dtype[Any], place: Path, reader: RingReader
    ) -> dict[str, MixedReplay]:
        rows = self.capacity // 5
        demos = RingWriter.open(place / "demos", row, rows, run_id="bench")
        for begin in range(0, rows, self.rows_in):  # once: a data set overwrites nothing
            some = min(self.rows_in, rows - begin)
            demos.append(_random_rows(row, some), some)
            demos.commit()
        rng = np.random.default_rng(1)
        config = ReplayConfig()
        other = RingReader(place / "demos")
        uniform = Source("demos", UniformReplay(other, rng), 0.5)
        by_priority = Source("demos", PrioritizedReplay(other, rng, config), 0.5)
        return {
            "sample": MixedReplay(UniformReplay(reader, rng), [uniform]),
            "prioritized": MixedReplay(PrioritizedReplay(reader, rng, config), [by_priority]),
        }


def calls_per_s(
    work: Callable[[], object], seconds: float, *, look_every: int = _LOOK_EVERY
) -> float:
    """Measure the calls of `work` per second of this process's processor time.

    Nothing measured here waits: on an idle machine this is the time of the clock, on a busy one it
    leaves out the time that other processes had the core.

    Args:
        work: one call.
        seconds: to spend.
        look_every: calls between two looks at the clock.
    """
    work()
    calls = 0
    began = time.process_time()
    while (passed := time.process_time() - began) < seconds:
        for _ in range(look_every):
            work()
        calls += look_every
    return calls / passed


class _PlainArrays:
    """A ring of arrays with nothing more than it needs."""

    def __init__(self, row: np.dtype[Any], capacity: int) -> None:
        self._columns = empty_columns(row, capacity)
        for column in self._columns.values():
            column.fill(0)
        self._capacity = capacity
        self._at = 0
        self._rng = np.random.default_rng(0)
        self._out: Columns = {}

    def insert(self, batch: Columns, rows: int) -> None:
        begin, end = self._at, self._at + rows
        if end > self._capacity:
            begin, end = 0, rows
        for name, column in self._columns.items():
            column[begin:end] = batch[name]
        self._at = end

    def sample(self, rows: int) -> None:
        places = self._rng.integers(self._capacity, size=rows)
        if not self._out:
            self._out = {
                name: np.empty((rows, *column.shape[1:]), column.dtype)
                for name, column in self._columns.items()
            }
        for name, column in self._columns.items():
            np.take(column, places, 0, self._out[name], "clip")


def _inserting(ring: MemoryRing | RingWriter, batch: Columns, rows: int) -> Callable[[], None]:
    pending = 0

    def insert() -> None:
        nonlocal pending
        ring.append(batch, rows)
        pending += 1
        if pending == _COMMIT_EVERY:
            ring.commit(b"a stamp")
            pending = 0

    return insert


def _drawing_by_priority(
    replay: PrioritizedReplay | MixedReplay, rows: int, errors: np.ndarray[Any, Any]
) -> Callable[[], None]:
    def draw() -> None:
        replay.update_priority(replay.sample(rows).indices, errors)

    return draw


def _random_rows(row: np.dtype[Any], rows: int) -> Columns:
    rng = np.random.default_rng(0)
    columns = empty_columns(row, rows)
    for column in columns.values():
        column[...] = rng.integers(0, 2, column.shape)
    return columns


def _compared(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Return rows per second of each, the ratios to plain numpy, that of disk to memory, and that
    of two sources to one."""
    bound = rates["numpy"]
    two = rates.get(TWO)
    mixed = {} if two is None else {f"{TWO}_to_one_ratio": ratio_of_rounds(two, rates["mapped"])}
    return {
        **mixed,
        **{f"{name}_rows_per_s": summarize_rounds(per_s) for name, per_s in rates.items()},
        **{f"{name}_ratio": ratio_of_rounds(rates[name], bound) for name in ("memory", "mapped")},
        "mapped_to_memory_ratio": ratio_of_rounds(rates["mapped"], rates["memory"]),
    }
