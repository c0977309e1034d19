"""An agent that learns nothing: its models say when they were published, its policies note when
they acted on them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.kind import AgentKind
from vedette_rl.core import Columns, ModelInfo, OptResult, State
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.envs.spaces import Spaces
from vedette_rl.storage.buffer_pool import BufferPool

if TYPE_CHECKING:  # actors load no torch
    import torch


class StampedConfig(AgentConfig):
    """Size of the models, and their interval.

    Args:
        model_bytes: of a model.
        opt_s: what an optimization step takes, asleep.
        notes: directory where each actor's policy writes a line for every model that it acts on:
            version, when it was published, when it was first acted on; seconds of the machine's
            one monotonic clock.
    """

    batch_size: int = 1
    model_bytes: int = 1 << 20
    opt_s: float = 0.05
    notes: str = ""


class StampedAgent:
    """The half that would learn."""

    def __init__(self, config: StampedConfig) -> None:
        self.opt_steps = 0
        self._opt_s = config.opt_s
        self._weights = np.ones(config.model_bytes // 4, np.float32)
        self._memory = BufferPool()  # as networks' own weights are copied

    def opt(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
        *,
        record: bool = False,
    ) -> OptResult:
        """Sleep."""
        time.sleep(self._opt_s)
        self.opt_steps += 1
        return OptResult()

    def train(self, seconds: float) -> NDArray[np.float32]:
        """Write the weights again and again, as an optimizer does; they stay as they are."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            np.multiply(self._weights, 1, out=self._weights)
        return self._weights

    def model_info(self) -> ModelInfo:
        """The weights, and now."""
        published = np.array([time.monotonic()])
        weights = self._memory.allocate(self._weights.nbytes).view(np.float32)
        weights[...] = self._weights
        return ModelInfo(self.opt_steps, {"published": published, "weights": weights})

    def get_state(self) -> State:
        return {"opt_steps": self.opt_steps}

    def set_state(self, state: State) -> None:
        self.opt_steps = state["opt_steps"]


class StampedPolicy:
    """The half that acts, by doing nothing."""

    def __init__(self, notes: Path) -> None:
        self._file = (notes / f"{os.getpid()}.txt").open("a", buffering=1)
        self._new: tuple[int, float] | None = None

    def sync_model(self, model: ModelInfo) -> None:
        self._new = model.version, float(model.arrays["published"][0])

    def act(
        self, obs: Columns, *, explore: bool, begins: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        if self._new is not None:
            version, published = self._new
            self._file.write(f"{version} {published!r} {time.monotonic()!r}\n")
            self._new = None
        return np.zeros(len(obs["obs"]), np.int64)


def _build_agent(config: StampedConfig, spaces: Spaces, *, device: str, seed: int) -> StampedAgent:
    return StampedAgent(config)


def _build_policy(
    config: StampedConfig, spaces: Spaces, *, ranks: NDArray[np.floating[Any]], seed: int
) -> StampedPolicy:
    return StampedPolicy(Path(config.notes))


STAMPED = AgentKind("bench.stamped_agent:STAMPED", StampedConfig, _build_agent, _build_policy)
"""Takes any discrete actions."""
