"""A training loop by itself: an agent and a replay in memory, for measuring what runs beside it,
and SAC's beside Stable-Baselines3's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from vedette.bench.measuring import ratio_of_rounds, summarize_rounds
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent, empty_columns
from vedette_rl.device_loader import make_loader
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.errors import UsageError
from vedette_services.host.system import keep_freed_memory
from vedette_services.learner.background import SWITCH_S

_ROWS = 10_000
_WARM_OPTS = 50
_CONTROL = Spaces(
    gym.spaces.Box(-1.0, 1.0, (17,), np.float32), gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
)
"""As large as HalfCheetah's."""


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
    """DQN with an MLP of two hidden layers on four numbers, or the paper's SAC on 17; warm when it
    is made.

    Args:
        batch_size: samples of an optimization step.
        hidden: units of each hidden layer.
        agent: ``dqn`` or ``sac``.
    """

    def __init__(self, batch_size: int, hidden: int, agent: str = "dqn") -> None:
        spaces = Spaces(gym.spaces.Box(-1.0, 1.0, (4,), np.float32), gym.spaces.Discrete(2))
        kind, settings = agent_kind(agent), dict[str, Any]()
        if agent == "sac":
            spaces, settings = _CONTROL, {**kind.config.values_before}
        settings |= {"name": agent, "batch_size": batch_size, "hidden_sizes": (hidden, hidden)}
        config = kind.config(**settings)
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


@dataclass(frozen=True, slots=True)
class SacBench:
    """Measures the paper's SAC, two layers of 256 and batches of 256, beside Stable-Baselines3's.

    Blocks of steps of both take turns, each in a process of its own with one torch thread.

    Args:
        rounds: blocks of each.
        opts: optimization steps of a block.
    """

    rounds: int = 40
    opts: int = 10

    def run(self) -> dict[str, Any]:
        """Measure milliseconds of a step, of processor time and by the clock."""
        scripts = Path(__file__).resolve().parent.parent
        python = scripts.parent / ".venv-stable-baselines3/bin/python"
        if not python.exists():
            raise UsageError("Stable-Baselines3 is not here: `scripts/setup_sb3` installs it")
        peer = [python, scripts / "peers/learner_sb3.py", "256", "sac"]
        keep_freed_memory()
        with (
            imitate_trainer(),
            subprocess.Popen(peer, stdin=-1, stdout=-1, text=True) as process,
        ):
            loop = BareLoop(256, 256, "sac")
            pairs = [(self._ours(loop), self._theirs(process)) for _ in range(1 + self.rounds)][1:]
        found: dict[str, Any] = {}
        for k, figure in enumerate(("processor_ms", "wall_ms")):
            ours, theirs = ([each[k] for each in side] for side in zip(*pairs, strict=True))
            found[figure] = summarize_rounds(ours)
            found[f"theirs_{figure}"] = summarize_rounds(theirs)
            found[f"theirs_by_ours_{figure}"] = ratio_of_rounds(theirs, ours)
        return found

    def _ours(self, loop: BareLoop) -> tuple[float, float]:
        spent = -time.process_time()
        wall_s = loop.opts(self.opts)
        spent += time.process_time()
        return 1e3 * spent / self.opts, 1e3 * wall_s / self.opts

    def _theirs(self, process: subprocess.Popen[str]) -> tuple[float, float]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{self.opts}\n")
        process.stdin.flush()
        spent, wall_s = map(float, process.stdout.readline().split())
        return 1e3 * spent / self.opts, 1e3 * wall_s / self.opts
