"""A training loop by itself: an agent and a replay in memory, for measuring what runs beside it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium as gym
import numpy as np
import torch

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent, empty_columns
from vedette_rl.device_loader import make_loader
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.learner.background import SWITCH_S

_ROWS = 10_000
_WARM_OPTS = 50


@contextmanager
def imitate_trainer() -> Iterator[None]:
    """Set torch to one thread, and Python's switch interval to the trainer's, meanwhile."""
    torch.set_num_threads(1)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)


class BareLoop:
    """DQN with an MLP of two hidden layers on four numbers; warm when it is made.

    Args:
        batch_size: samples of an optimization step.
        hidden: units of each hidden layer.
    """

    def __init__(self, batch_size: int, hidden: int) -> None:
        spaces = Spaces(gym.spaces.Box(-1.0, 1.0, (4,), np.float32), gym.spaces.Discrete(2))
        kind = agent_kind("dqn")
        config = kind.config(name="dqn", batch_size=batch_size, hidden_sizes=(hidden, hidden))
        self.agent: Agent = kind.build_agent(config, spaces, device="cpu", seed=0)
        self.replay = _filled(spaces)
        self._loader = make_loader(self.replay, batch_size, torch.device("cpu"))
        self.opts(_WARM_OPTS)

    def opts(self, count: int) -> float:
        """Optimize; the seconds it took."""
        began = time.perf_counter()
        for _ in range(count):
            self.opt()
        return time.perf_counter() - began

    def opt(self) -> None:
        """One optimization step on one batch."""
        loaded = self._loader.load()
        self.agent.opt(loaded.batch, loaded.weights, record=False)


def _filled(spaces: Spaces) -> UniformReplay:
    row = transition_dtype(spaces)
    ring, rng = MemoryRing(row, _ROWS), np.random.default_rng(0)
    while ring.inserted < _ROWS:
        columns = empty_columns(row, ring.room)
        for column in columns.values():
            column[...] = rng.integers(0, 2, column.shape)
        ring.append(columns, ring.room)
        ring.commit()
    return UniformReplay(ring, rng)
