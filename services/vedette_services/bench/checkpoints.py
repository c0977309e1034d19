"""The training loop while a checkpoint is written, beside the same loop in peace, in turn."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from vedette_rl.agents.registry import agent_type
from vedette_rl.checkpoint import Checkpoints
from vedette_rl.core import Agent, columns_of
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.loading import make_loader
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.bench.spread import ratio, spread
from vedette_services.learner.saver import SWITCH_S, Saver

_ROWS = 10_000
_WARM_OPTS = 50


@dataclass(frozen=True, slots=True)
class CheckpointBench:
    """What to measure: DQN with an MLP of two hidden layers on four numbers.

    While it is measured, one checkpoint after the other is written, so that the loop is never
    without one. A run writes one now and then: it is slowed for that long, by that much.

    Args:
        batch_size: samples of an optimization step.
        hidden: units of each hidden layer.
        seconds: of a measurement.
        rounds: each measures both.
        directory: where checkpoints are written; None: in the place for temporary files.
    """

    batch_size: int = 256
    hidden: int = 256
    seconds: float = 0.2
    rounds: int = 41
    directory: Path | None = None

    def run(self) -> dict[str, Any]:
        """Measure in turn; optimization steps a second, their ratio, and the checkpoints."""
        torch.set_num_threads(1)
        sys.setswitchinterval(SWITCH_S)  # as the trainer does
        peace: list[float] = []
        writing: list[float] = []
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="vedette-bench-") as place:
            loop = _Loop(self, Path(place))
            for _ in range(_WARM_OPTS):
                loop.opt()
            for _ in range(self.rounds):
                loop.rest()
                peace.append(loop.opts_per_s(self.seconds, lambda: None))
                writing.append(loop.opts_per_s(self.seconds, loop.save))
            loop.rest()
            size = loop.checkpoint_bytes()
        return {
            "opt_steps_per_s": spread(peace),
            "opt_steps_per_s_while_writing": spread(writing),
            "ratio": ratio(writing, peace),
            "checkpoint_bytes": size,
            "checkpoint_s": self.seconds * self.rounds / loop.saved,
        }


class _Loop:
    """An agent, a replay in memory, and what writes checkpoints beside it."""

    def __init__(self, bench: CheckpointBench, place: Path) -> None:
        spaces = Spaces(gym.spaces.Box(-1.0, 1.0, (4,), np.float32), gym.spaces.Discrete(2))
        kind = agent_type("dqn")
        config = kind.config(
            name="dqn",
            batch_size=bench.batch_size,
            hidden_sizes=(bench.hidden, bench.hidden),
        )
        self.agent: Agent = kind.build_agent(config, spaces, device="cpu", seed=0)
        self._replay = _filled(spaces)
        self._loader = make_loader(self._replay, bench.batch_size, torch.device("cpu"))
        self._checkpoints = Checkpoints(place, keep=3)
        self._saver = Saver(self._checkpoints)
        self.saved = 0

    def opt(self) -> None:
        loaded = self._loader.load()
        self.agent.opt(loaded.batch, loaded.weights, record=False)

    def opts_per_s(self, seconds: float, beside: Callable[[], None]) -> float:
        opts, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            beside()
            self.opt()
            opts += 1
        return opts / passed

    def save(self) -> None:
        """Have a checkpoint written, once the one before is."""
        if self._saver.busy:
            return
        state = {"agent": self.agent.get_state(), "replay": self._replay.get_state()}
        self._saver.save(self.agent.opt_steps, state, {"sampled": self.agent.opt_steps})
        self.saved += 1

    def rest(self) -> None:
        """Until nothing is being written."""
        while self._saver.busy:
            time.sleep(0.001)

    def checkpoint_bytes(self) -> int:
        return sum(file.stat().st_size for file in self._checkpoints.list()[-1].iterdir())


def _filled(spaces: Spaces) -> UniformReplay:
    row = transition_dtype(spaces)
    ring, rng = MemoryRing(row, _ROWS), np.random.default_rng(0)
    while ring.inserted < _ROWS:
        columns = columns_of(row, ring.room)
        for column in columns.values():
            column[...] = rng.integers(0, 2, column.shape)
        ring.append(columns, ring.room)
        ring.commit()
    return UniformReplay(ring, rng)
