"""Observations stored once, beside the same transitions stored whole: bytes and speed.

Atari's stacks of four 84 x 84 images with three-step transitions; three cameras of 84 x 84 with
seven joints; vectors of any length. Of each, batches of eight environments as actors make them by
default. In one process and one run, what is compared in turn within every round.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from bench.measuring import ratio_of_rounds, summarize_rounds
from bench.replay import calls_per_s
from vedette_protocol.schema import Schema
from vedette_rl.core import Columns
from vedette_rl.envs.spaces import Spaces
from vedette_rl.replay.budget import replay_space
from vedette_rl.replay.frame_ring import open_reader, open_writer, whole_stacks
from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.config.loading import load_config
from vedette_services.run.replay_layout import ReplayLayout, replay_layout

_ENVS = 8
_COLUMNS = {"version": 0, "manager": 0, "actor": 0}


@dataclass(frozen=True, slots=True)
class Shape:
    """Transitions to store: their observations, and the rows of each environment in a batch."""

    space: gym.Space[Any]
    steps: int
    stack: int = 0
    n_step: int = 1


def shape_of(what: str) -> Shape:
    """The transitions of ``atari``, ``cameras``, or of a vector of that many numbers."""
    if what == "atari":
        return Shape(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), 75, 4, 3)
    if what == "cameras":
        camera = gym.spaces.Box(0, 255, (84, 84, 3), np.uint8)
        joints = gym.spaces.Box(-1, 1, (7,), np.float32)
        parts: dict[str, gym.Space[Any]] = {
            "front": camera,
            "left": camera,
            "wrist": camera,
            "joints": joints,
        }
        return Shape(gym.spaces.Dict(parts), 13)  # 13 x 8: the default of 100 rows
    return Shape(gym.spaces.Box(-1, 1, (int(what),), np.float32), 13)


@dataclass(frozen=True, slots=True)
class FramesBench:
    """Measures rings of observations stored whole and stored once.

    Args:
        capacity: rows.
        rows_out: rows of a sample drawn.
        seconds: of each measurement.
        rounds: each measures everything once.
        directory: where the rings are made; None: in the place for temporary files.
        what: see `shape_of`.
    """

    capacity: int = 10_000
    rows_out: int = 32
    seconds: float = 0.1
    rounds: int = 11
    directory: Path | None = None
    what: str = "atari"

    def run(self) -> dict[str, Any]:
        """Measure in turn; bytes a transition, rows a second, and ratios to whole observations."""
        shape = shape_of(self.what)
        rates: dict[str, dict[str, list[float]]] = {"insert": {}, "sample": {}}
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="vedette-bench-") as place:
            rings = {
                name: self._ring(shape, layout_of(shape, self.capacity, name), Path(place) / name)
                for name in ("plain", "once")
            }
            for _ in range(self.rounds):
                for name, ring in rings.items():
                    for group, (work, rows) in ring.works(self.rows_out).items():
                        rate = rows * calls_per_s(work, self.seconds, look_every=2)
                        rates[group].setdefault(name, []).append(rate)
            stored = {name: ring.row_bytes for name, ring in rings.items()}
            sent = {name: ring.sent_bytes for name, ring in rings.items()}
        return {
            "capacity": self.capacity,
            "what": self.what,
            "rows_in": _ENVS * shape.steps,
            "rows_out": self.rows_out,
            "rounds": self.rounds,
            "stored_bytes_per_row": stored,
            "sent_bytes_per_row": sent,
            "million_rows_bytes": {
                name: _total_bytes(layout_of(shape, 1_000_000, name), 1_000_000) for name in stored
            },
            **{group: _compared(rates_by_layout) for group, rates_by_layout in rates.items()},
        }

    def _ring(self, shape: Shape, layout: ReplayLayout, directory: Path) -> _Ring:
        writer = open_writer(
            directory,
            layout.stored,
            self.capacity,
            run_id="bench",
            guard=layout.guard,
            shared=layout.shared,
        )
        batch = _batch(shape, layout_of(shape, self.capacity, "once").schema)
        replay = UniformReplay(open_reader(directory), np.random.default_rng(0))
        ring = _Ring(writer, layout, batch, replay)
        while writer.inserted < self.capacity + writer.manifest.guard:
            ring.insert()
        return ring


class _Ring:
    """A ring, what is inserted into it, and what draws from it."""

    def __init__(
        self, writer: RingWriter, layout: ReplayLayout, batch: Columns, replay: UniformReplay
    ) -> None:
        self._writer = writer
        self._replay = replay
        self._batch = batch if layout.shared else whole_stacks(batch)
        self.rows = len(batch["reward"])
        self.row_bytes = writer.manifest.total_bytes / writer.manifest.physical_rows
        sharing = layout.schema.sharing
        entries = len(batch[sharing.names[0]]) if sharing else 0
        self.sent_bytes = layout.schema.payload_bytes(self.rows, entries) / self.rows

    def insert(self) -> None:
        self._writer.append({**self._batch, **_COLUMNS}, self.rows)
        self._writer.commit(b"a stamp")

    def works(self, rows_out: int) -> dict[str, tuple[Callable[[], Any], int]]:
        """Return each call and its rows, by group."""
        return {
            "insert": (self.insert, self.rows),
            "sample": (lambda: self._replay.sample(rows_out), rows_out),
        }


def layout_of(shape: Shape, capacity: int, storage: str) -> ReplayLayout:
    """Return the layout of these transitions, sent and stored."""
    settings = [
        f"replay.capacity={capacity}",
        f"replay.frame_storage={storage}",
        f"agent.n_step={shape.n_step}",
        f"actors.envs_per_actor={_ENVS}",
        f"actors.n_buffer={_ENVS * shape.steps}",
    ]
    config = load_config(env="Synthetic-v0", agent="dqn", settings=settings, environment={}).config
    return replay_layout(config, Spaces(shape.space, gym.spaces.Discrete(18), shape.stack))


def _batch(shape: Shape, schema: Schema) -> Columns:
    """As actors make them: a part of each environment's episode, its frames once."""
    assert schema.sharing is not None
    rng = np.random.default_rng(0)
    rows = _ENVS * shape.steps
    stack = max(1, shape.stack)
    frames = shape.steps + stack + shape.n_step - 1
    first = np.arange(_ENVS) * frames + np.arange(shape.steps)[:, None]  # (steps, envs)
    obs = (first.ravel()[:, None] + np.arange(stack)).astype(np.uint32)
    obs = obs if shape.stack else obs[:, 0]
    shared: Columns = {
        column.name: rng.integers(0, 256, (_ENVS * frames, *column.shape), np.uint8).astype(
            column.numpy_dtype
        )
        for column in schema.sharing.columns
    }
    return {
        "obs": obs,
        "action": rng.integers(0, 18, rows),
        "reward": rng.random(rows, np.float32),
        "next_obs": obs + np.uint32(shape.n_step),
        "terminated": np.zeros(rows, np.bool_),
        "truncated": np.zeros(rows, np.bool_),
        "n_steps": np.full(rows, shape.n_step, np.uint8),
        **shared,
    }


def _total_bytes(layout: ReplayLayout, capacity: int) -> int:
    need = replay_space(
        layout.stored, capacity, prioritized=False, guard=layout.guard, shared=layout.shared
    )
    return need.total_bytes


def _compared(rates: dict[str, list[float]]) -> dict[str, Any]:
    return {
        **{f"{name}_rows_per_s": summarize_rounds(per_s) for name, per_s in rates.items()},
        "once_to_plain_ratio": ratio_of_rounds(rates["once"], rates["plain"]),
    }
