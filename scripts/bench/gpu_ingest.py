"""The cases of `scripts/bench_gpu`, and the process that inserts samples beside the learner.

`python -m bench.gpu_ingest CASE DIRECTORY quick|full` fills the case's replay, writes one byte
to its output, and then obeys its input: ``i`` inserts at the case's rate, ``h`` holds, the end
ends it. It loads no torch, as the gateway.
"""

from __future__ import annotations

import os
import select
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np

from vedette_rl.core import Columns, empty_columns
from vedette_rl.envs.spaces import Spaces
from vedette_rl.replay.frame_ring import open_writer
from vedette_rl.replay.frame_stacks import FRAME_SPANS, STACKS
from vedette_rl.replay.ring import RingWriter
from vedette_services.config import RunConfig, load_config
from vedette_services.run.replay_layout import ReplayLayout, replay_layout

_QUICK_BATCH = 32
_QUICK_CAPACITY = 2_000
_PAUSE_S = 0.002  # between two commits: the gateway commits once for all that has come meanwhile

_HOPPER = Spaces(
    gym.spaces.Box(-np.inf, np.inf, (11,), np.float32), gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
)
_CART_POLE = Spaces(gym.spaces.Box(-np.inf, np.inf, (4,), np.float32), gym.spaces.Discrete(2))
_ATARI = Spaces(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), gym.spaces.Discrete(6), stack=4)


_PAPER = (
    "agent.normalize_observations=false",
    "agent.critic_architecture=mlp",
    "agent.learning_rate=3e-4",
    "agent.alpha_learning_rate=3e-4",
    "agent.policy_delay=1",
)


@dataclass(frozen=True, slots=True)
class Case:
    """A learner's load.

    Args:
        env: whose shapes these are; it is never made.
        capacity: rows of the replay, full from the beginning.
        ingest_rows_per_s: samples inserted meanwhile; for Atari as many as Ape-X's 360 actors made
            (50,000 frames a second, four a sample).
        prioritized: whether batches are drawn by TD error.
        paper: SAC as in its paper, not by default.
        precision: `learner.precision`.
    """

    env: str
    agent: str
    spaces: Spaces
    batch_size: int
    capacity: int
    ingest_rows_per_s: float
    prioritized: bool = False
    paper: bool = False
    precision: str = "float32"

    def config(self, *, quick: bool) -> RunConfig:
        """Its run, of one-step transitions, else as by default. Quick: small batches and replay."""
        batch_size = self.batch_size
        capacity = self.capacity
        if quick:
            batch_size = min(batch_size, _QUICK_BATCH)
            capacity = _QUICK_CAPACITY
        return load_config(
            env=self.env,
            agent=self.agent,
            settings=[
                "preset=none",
                f"env.frame_stack={self.spaces.stack}",
                f"agent.batch_size={batch_size}",
                "agent.n_step=1",
                *(_PAPER if self.paper else ()),
                f"replay.capacity={capacity}",
                f"replay.prioritized={self.prioritized}".lower(),
                "replay.samples_per_insert=0",
                f"learner.precision={self.precision}",
                "learner.sync_interval=50",
                "learner.eval_interval=0",
                "learner.save_interval=0",
            ],
        ).config


CASES = {
    "sac-hopper-256": Case("Hopper-v5", "sac", _HOPPER, 256, 1_000_000, 200_000),
    "dqn-cartpole-256": Case("CartPole-v1", "dqn", _CART_POLE, 256, 1_000_000, 200_000),
    "dqn-atari-512": Case("ALE/Pong-v5", "dqn", _ATARI, 512, 100_000, 12_500),
    "dqn-atari-512-tf32": Case(
        "ALE/Pong-v5", "dqn", _ATARI, 512, 100_000, 12_500, precision="tf32"
    ),
    "dqn-atari-512-bfloat16": Case(
        "ALE/Pong-v5", "dqn", _ATARI, 512, 100_000, 12_500, precision="bfloat16"
    ),
    "sac-paper-256": Case("Hopper-v5", "sac", _HOPPER, 256, 1_000_000, 200_000, paper=True),
    "dqn-atari-32": Case("ALE/Pong-v5", "dqn", _ATARI, 32, 100_000, 12_500),
    "dqn-atari-512-prioritized": Case("ALE/Pong-v5", "dqn", _ATARI, 512, 100_000, 12_500, True),
}


def _batch(layout: ReplayLayout, rows: int) -> Columns:
    """Transitions of one environment: numbers between 0 and 1, frames of noise."""
    rng = np.random.default_rng(0)
    columns = empty_columns(layout.stored, rows)
    for name, column in columns.items():
        if column.dtype.kind == "f":
            column[...] = rng.random(column.shape, np.float32)
        elif name in ("version", "manager", "actor"):
            column[...] = 0
        elif name == "n_steps":
            column[...] = 1
        else:
            column[...] = rng.integers(0, 2, column.shape)
    columns["terminated"][...] = rng.random(rows) < 0.01
    if layout.shared is not None:
        del columns[FRAME_SPANS]
        stack = columns["obs"].shape[1]
        oldest = np.arange(rows)[:, np.newaxis] + np.arange(stack)
        columns.update({name: oldest + after for after, name in enumerate(STACKS)})
        for frames in layout.shared.columns:
            columns[frames.name] = rng.integers(0, 256, (rows + stack, *frames.shape), np.uint8)
    return columns


def _insert_while_told(ring: RingWriter, batch: Columns, rows: int, rows_per_s: float) -> None:
    """Obey the input; until it ends."""
    inserts = False
    due = 0.0
    last = time.monotonic()
    while True:
        if select.select([sys.stdin], [], [], _PAUSE_S if inserts else None)[0]:
            word = os.read(sys.stdin.fileno(), 1)
            if not word:
                return
            inserts = word == b"i"
            due = 0.0
            last = time.monotonic()
        elif inserts:
            now = time.monotonic()
            due = min(due + (now - last) * rows_per_s, float(ring.room))
            last = now
            while due >= rows:
                ring.append(batch, rows)
                due -= rows
            ring.commit()


def main() -> None:
    """Fill the replay, and obey."""
    case = CASES[sys.argv[1]]
    quick = sys.argv[3] == "quick"
    config = case.config(quick=quick)
    layout = replay_layout(config, case.spaces)
    capacity = config.replay.capacity
    rows = config.actors.n_buffer
    ring = open_writer(
        Path(sys.argv[2]),
        layout.stored,
        capacity,
        run_id="bench",
        guard=layout.guard,
        shared=layout.shared,
    )
    batch = _batch(layout, rows)
    while ring.inserted < capacity:
        while ring.room >= rows and ring.inserted + ring.pending < capacity:
            ring.append(batch, rows)
        ring.commit()
    sys.stdout.buffer.write(b"f")
    sys.stdout.flush()
    _insert_while_told(ring, batch, rows, case.ingest_rows_per_s)


if __name__ == "__main__":
    main()
