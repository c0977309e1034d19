"""Stacked images stored frame by frame, beside the same transitions stored whole: bytes and speed.

Atari's: stacks of four 84 x 84 images, three-step transitions, batches of eight environments. In
one process and one run, what is compared in turn within every round.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from vedette.bench.measuring import ratio_of_rounds, summarize_rounds
from vedette.bench.replay import calls_per_s
from vedette_rl.core import Columns
from vedette_rl.envs.spaces import Spaces
from vedette_rl.replay.budget import replay_space
from vedette_rl.replay.frame_ring import open_reader, open_writer, whole_stacks
from vedette_rl.replay.frame_stacks import FRAMES
from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.config.loading import load_config
from vedette_services.run.replay_layout import ReplayLayout, replay_layout

_STACK, _SIZE, _N_STEP, _ENVS, _STEPS = 4, 84, 3, 8, 75
_COLUMNS = {"version": 0, "manager": 0, "actor": 0}


@dataclass(frozen=True, slots=True)
class FramesBench:
    """Measures rings of stacks stored whole and stored frame by frame.

    Args:
        capacity: rows.
        rows_out: rows of a sample drawn.
        seconds: of each measurement.
        rounds: each measures everything once.
        directory: where the rings are made; None: in the place for temporary files.
    """

    capacity: int = 10_000
    rows_out: int = 32
    seconds: float = 0.1
    rounds: int = 11
    directory: Path | None = None

    def run(self) -> dict[str, Any]:
        """Measure in turn; bytes a transition, rows a second, and ratios to whole stacks."""
        rates: dict[str, dict[str, list[float]]] = {"insert": {}, "sample": {}}
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="vedette-bench-") as place:
            rings = {
                name: self._ring(layout_of(self.capacity, name), Path(place) / name)
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
            "rows_in": _ENVS * _STEPS,
            "rows_out": self.rows_out,
            "rounds": self.rounds,
            "stored_bytes_per_row": stored,
            "sent_bytes_per_row": sent,
            "million_rows_bytes": {
                name: _total_bytes(layout_of(1_000_000, name), 1_000_000) for name in stored
            },
            **{group: _compared(found) for group, found in rates.items()},
        }

    def _ring(self, layout: ReplayLayout, directory: Path) -> _Ring:
        writer = open_writer(
            directory,
            layout.stored,
            self.capacity,
            run_id="bench",
            guard=layout.guard,
            shared=layout.shared,
        )
        ring = _Ring(
            writer, layout, UniformReplay(open_reader(directory), np.random.default_rng(0))
        )
        while writer.inserted < self.capacity + writer.manifest.guard:
            ring.insert()
        return ring


class _Ring:
    """A ring, what is inserted into it, and what draws from it."""

    def __init__(self, writer: RingWriter, layout: ReplayLayout, replay: UniformReplay) -> None:
        self._writer, self._replay = writer, replay
        batch = _batch()
        self._batch = batch if layout.shared else whole_stacks(batch)
        self.rows = len(batch["reward"])
        self.row_bytes = writer.manifest.total_bytes / writer.manifest.physical_rows
        entries = len(batch[FRAMES]) if layout.shared else 0
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


def layout_of(capacity: int, storage: str) -> ReplayLayout:
    """Return the layout of Atari's transitions, sent and stored."""
    box = gym.spaces.Box(0, 255, (_STACK, _SIZE, _SIZE), np.uint8)
    settings = [
        f"replay.capacity={capacity}",
        f"replay.frame_storage={storage}",
        f"agent.n_step={_N_STEP}",
        f"actors.envs_per_actor={_ENVS}",
        f"actors.n_buffer={_ENVS * _STEPS}",
    ]
    config = load_config(env="Synthetic-v0", agent="dqn", settings=settings, environment={}).config
    return replay_layout(config, Spaces(box, gym.spaces.Discrete(18), _STACK))


def _batch() -> Columns:
    """As actors make them: a part of each environment's episode, its frames once."""
    rng, rows = np.random.default_rng(0), _ENVS * _STEPS
    frames = _STEPS + _STACK + _N_STEP - 1
    first = np.arange(_ENVS) * frames + np.arange(_STEPS)[:, None]  # (steps, envs)
    obs = (first.ravel()[:, None] + np.arange(_STACK)).astype(np.uint32)
    return {
        "obs": obs,
        "action": rng.integers(0, 18, rows),
        "reward": rng.random(rows, np.float32),
        "next_obs": obs + np.uint32(_N_STEP),
        "terminated": np.zeros(rows, np.bool_),
        "truncated": np.zeros(rows, np.bool_),
        "n_steps": np.full(rows, _N_STEP, np.uint8),
        FRAMES: rng.integers(0, 256, (_ENVS * frames, _SIZE, _SIZE), dtype=np.uint8),
    }


def _total_bytes(layout: ReplayLayout, capacity: int) -> int:
    need = replay_space(
        layout.stored, capacity, prioritized=False, guard=layout.guard, shared=layout.shared
    )
    return need.total_bytes


def _compared(rates: dict[str, list[float]]) -> dict[str, Any]:
    return {
        **{f"{name}_rows_per_s": summarize_rounds(found) for name, found in rates.items()},
        "once_to_plain_ratio": ratio_of_rounds(rates["once"], rates["plain"]),
    }
