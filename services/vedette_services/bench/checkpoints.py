"""The training loop while a checkpoint is written, beside the same loop between two of them."""

from __future__ import annotations

import sys
import tempfile
import time
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

    A checkpoint is begun every so many optimization steps. Those that it overlaps, the one that
    begins with the copy of the state among them, stand beside those between it and the one before.
    A run with default settings writes one every 10,000.

    Args:
        batch_size: samples of an optimization step.
        hidden: units of each hidden layer.
        apart: optimization steps in peace before each checkpoint.
        checkpoints: of a round.
        rounds: each measures both, within a second or two.
        directory: where checkpoints are written; None: in the place for temporary files.
    """

    batch_size: int = 256
    hidden: int = 256
    apart: int = 20
    checkpoints: int = 10
    rounds: int = 25
    directory: Path | None = None

    def run(self) -> dict[str, Any]:
        """Measure; optimization steps a second, their ratio, and what a checkpoint costs."""
        torch.set_num_threads(1)
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)  # as the trainer does
        try:
            with tempfile.TemporaryDirectory(dir=self.directory, prefix="vedette-bench-") as place:
                loop = _Loop(self, Path(place))
                loop.opts(_WARM_OPTS)
                rounds = [self._round(loop) for _ in range(self.rounds)]
                size = loop.checkpoint_bytes()
        finally:
            sys.setswitchinterval(interval_s)
        peace = [steps.peace_opts / steps.peace_s for steps in rounds]
        writing = [steps.writing_opts / steps.writing_s for steps in rounds]
        costs = [steps.cost_s / self.checkpoints for steps in rounds]
        return {
            "opt_steps_per_s": spread(peace),
            "opt_steps_per_s_while_writing": spread(writing),
            "ratio": ratio(writing, peace),
            "checkpoint_bytes": size,
            "checkpoint_ms": spread([1e3 * r.writing_s / self.checkpoints for r in rounds]),
            "cost_ms": spread([1e3 * cost for cost in costs]),
            "cost_opt_steps": spread([c * rate for c, rate in zip(costs, peace, strict=True)]),
        }

    def _round(self, loop: _Loop) -> _Steps:
        steps = _Steps()
        for _ in range(self.checkpoints):
            steps.peace_s += loop.opts(self.apart)
            steps.peace_opts += self.apart
            opts, took = loop.opts_while_writing()
            steps.writing_s += took
            steps.writing_opts += opts
        return steps


@dataclass(slots=True)
class _Steps:
    """A round: optimization steps that a checkpoint overlaps, the others, and their times."""

    peace_opts: int = 0
    peace_s: float = 0.0
    writing_opts: int = 0
    writing_s: float = 0.0

    @property
    def cost_s(self) -> float:
        """What the checkpoints' steps took beyond what as many take in peace."""
        return self.writing_s - self.writing_opts * self.peace_s / self.peace_opts


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

    def opts(self, count: int) -> float:
        """Optimize in peace; the seconds it took."""
        began = time.perf_counter()
        for _ in range(count):
            self._opt()
        return time.perf_counter() - began

    def opts_while_writing(self) -> tuple[int, float]:
        """Begin a checkpoint and optimize until it is written; the steps and the seconds."""
        opts, began = 0, time.perf_counter()
        self._save()
        while self._saver.busy:
            self._opt()
            opts += 1
        return opts, time.perf_counter() - began

    def _opt(self) -> None:
        loaded = self._loader.load()
        self.agent.opt(loaded.batch, loaded.weights, record=False)

    def _save(self) -> None:
        state = {"agent": self.agent.get_state(), "replay": self._replay.get_state()}
        self._saver.save(self.agent.opt_steps, state, {"sampled": self.agent.opt_steps})

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
