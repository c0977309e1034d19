"""A training loop by itself: an agent and a replay in memory, for measuring what runs beside it,
and SAC's beside Stable-Baselines3's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from bench.environments import PEER_PROGRAMS, ROOT
from bench.measuring import ratio_of_rounds, summarize_rounds
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent, empty_columns
from vedette_rl.device.loader import make_loader
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.errors import UsageError
from vedette_services.host.system import keep_freed_memory
from vedette_services.learner.trainer.background import SWITCH_S

_ROWS = 10_000
_WARM_OPTS = 50
_CONTROL = Spaces(
    gym.spaces.Box(-1.0, 1.0, (17,), np.float32), gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
)
"""As large as HalfCheetah's."""
_PAPER = {
    "normalize_observations": False,
    "critic_architecture": "mlp",
    "policy_delay": 1,
    "random_shift": 0,
}
"""SAC of its paper, in the place of the defaults."""


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
    """DQN with an MLP of two hidden layers on four numbers, or SAC on 17; warm when it is made.

    Args:
        batch_size: samples of an optimization step.
        hidden: units of each hidden layer.
        agent: ``dqn`` or ``sac``.
        paper: SAC as in its paper, not with its defaults.
    """

    def __init__(
        self, batch_size: int, hidden: int, agent: str = "dqn", *, paper: bool = False
    ) -> None:
        spaces = Spaces(gym.spaces.Box(-1.0, 1.0, (4,), np.float32), gym.spaces.Discrete(2))
        kind = agent_kind(agent)
        settings = dict[str, Any]()
        if agent == "sac":
            spaces = _CONTROL
            settings = dict(_PAPER) if paper else {}
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
    ring = MemoryRing(row, _ROWS)
    rng = np.random.default_rng(0)
    while ring.inserted < _ROWS:
        columns = empty_columns(row, ring.room)
        for column in columns.values():
            column[...] = rng.integers(0, 2, column.shape)
        ring.append(columns, ring.room)
        ring.commit()
    return UniformReplay(ring, rng)


SIDES = ("vedette, defaults", "vedette, the paper's", "Stable-Baselines3")
FIGURES = ("processor time", "wall time")


@dataclass(frozen=True, slots=True)
class SacBench:
    """Measures SAC, two layers of 256 and batches of 256, beside Stable-Baselines3's.

    Blocks of steps of all `SIDES` take turns, theirs in a process of its own; all with one torch
    thread.

    Args:
        rounds: blocks of each.
        opts: optimization steps of a block: a multiple of SAC's `policy_delay`.
    """

    rounds: int = 40
    opts: int = 12

    def run(self) -> dict[str, Any]:
        """Measure milliseconds of a step, of processor time and by the clock."""
        python = ROOT / ".venv-stable-baselines3/bin/python"
        if not python.exists():
            raise UsageError("Stable-Baselines3 is not here: `scripts/setup_peer` installs it")
        peer = [str(python), str(PEER_PROGRAMS / "learner_sb3.py"), "256", "sac"]
        keep_freed_memory()
        with (
            imitate_trainer(),
            subprocess.Popen(peer, stdin=-1, stdout=-1, text=True) as process,
        ):
            ours = [BareLoop(256, 256, "sac", paper=paper) for paper in (False, True)]
            rounds = [
                [*map(self._ours, ours), self._theirs(process)] for _ in range(1 + self.rounds)
            ][1:]
        figures: dict[str, Any] = {}
        for k, figure in enumerate(FIGURES):
            of = {side: [each[n][k] for each in rounds] for n, side in enumerate(SIDES)}
            figures[figure] = {side: summarize_rounds(ms) for side, ms in of.items()}
            figures[f"theirs by ours, {figure}"] = {
                side: ratio_of_rounds(of[SIDES[-1]], of[side]) for side in SIDES[:-1]
            }
        return figures

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
