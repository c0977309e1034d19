"""What every peer of `scripts/bench/run peers` does: two producers' batches into a ring of arrays.

A peer runs in an environment of its own, so nothing here needs more than numpy. It is called as
`python scripts/bench/peer_programs/PEER.py small|atari SECONDS` and prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

PRODUCERS = 2
PREPARED = 8  # batches that a producer sends in turn
WARM_S = 1.0
FIRST_S = 180.0

Batch = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Load:
    """Batches of `rows` transitions with observations of `shape` and `dtype`, into arrays of
    `capacity` rows: as `scripts/bench/run wire` has them."""

    rows: int
    shape: tuple[int, ...]
    dtype: str
    capacity: int

    def batches(self) -> list[Batch]:
        """A few different ones."""
        rng = np.random.default_rng(0)
        return [self._batch(rng) for _ in range(PREPARED)]

    def _batch(self, rng: np.random.Generator) -> Batch:
        shape = (self.rows, *self.shape)
        obs = rng.integers(0, 2, (2, *shape)).astype(self.dtype)
        return {
            "obs": obs[0],
            "action": rng.integers(0, 2, self.rows),
            "reward": rng.random(self.rows, np.float32),
            "next_obs": obs[1],
            "terminated": np.zeros(self.rows, np.bool_),
            "truncated": np.zeros(self.rows, np.bool_),
        }


def packed(batch: Batch) -> np.ndarray[Any, Any]:
    """A batch's bytes, column after column."""
    return np.concatenate([column.reshape(-1).view(np.uint8) for column in batch.values()])


def unpacked(flat: np.ndarray[Any, Any], example: Batch) -> Batch:
    """The batch whose bytes these are, as views of them."""
    batch = {}
    at = 0
    for name, column in example.items():
        batch[name] = flat[at : at + column.nbytes].view(column.dtype).reshape(column.shape)
        at += column.nbytes
    return batch


LOADS = {
    "small": Load(64, (4,), "float32", 100_000),
    "atari": Load(32, (4, 84, 84), "uint8", 4_000),
}


class Ring:
    """Preallocated arrays, written in turn; counts what comes after the warm-up."""

    def __init__(self, load: Load) -> None:
        example = load.batches()[0]
        rows = load.capacity // load.rows * load.rows
        self._columns = {
            name: np.zeros((rows, *column.shape[1:]), column.dtype)
            for name, column in example.items()
        }
        self._rows = rows
        self._at = 0
        self.inserted = 0

    def insert(self, batch: Batch) -> None:
        """Copy a batch into its place."""
        count = len(batch["reward"])
        if self._at + count > self._rows:
            self._at = 0
        for name, column in self._columns.items():
            column[self._at : self._at + count] = batch[name]
        self._at += count
        self.inserted += count


def asked() -> tuple[Load, float]:
    """What the command line asks for."""
    return LOADS[sys.argv[1]], float(sys.argv[2])


def receive_for(seconds: float, ring: Ring, receive: Callable[[], None]) -> None:
    """Call `receive`, which inserts what has come, and print transitions a second."""
    deadline = time.monotonic() + FIRST_S
    while not ring.inserted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came for {FIRST_S:g} s")
        receive()
    warm = time.monotonic() + WARM_S
    while time.monotonic() < warm:
        receive()
    before = ring.inserted
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        receive()
    tell((ring.inserted - before) / (time.monotonic() - began))


def count_for(seconds: float, inserted: Callable[[], int]) -> None:
    """The same where others insert, and `inserted` says how much."""
    deadline = time.monotonic() + FIRST_S
    while not inserted():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came for {FIRST_S:g} s")
        time.sleep(0.05)
    time.sleep(WARM_S)
    before = inserted()
    began = time.monotonic()
    time.sleep(seconds)
    tell((inserted() - before) / (time.monotonic() - began))


def tell(per_s: float) -> None:
    """Print the figure."""
    print(json.dumps({"per_s": per_s}), flush=True)
