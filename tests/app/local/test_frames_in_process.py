"""A run whose replay stores frames once learns what one that stores stacks whole does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from configurations import configured
from small_runs import trained

from vedette_rl.replay.frame_ring import MemoryFrameRing
from vedette_services.config import RunConfig


class Dots(gym.Env[Any, Any]):
    """A dot to follow: small pictures, episodes of random lengths."""

    observation_space = gym.spaces.Box(0, 255, (4, 5), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def _obs(self) -> Any:
        picture = np.zeros((4, 5), np.uint8)
        picture[self.np_random.integers(4), self._at] = 200
        return picture

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = 2
        self._left = int(self.np_random.integers(2, 30))
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._at = (self._at + int(action) - 1) % 5
        self._left = self._left - 1
        return self._obs(), float(self._at == 4), self._left == 0, False, {}


gym.register("FrameDots-v0", entry_point=Dots)


def configuration(**replay: Any) -> RunConfig:
    table: dict[str, Any] = {
        "preset": "none",
        "env": {"id": "FrameDots-v0", "frame_stack": 3},
        "agent": {"name": "dqn", "hidden_sizes": [16], "batch_size": 8, "n_step": 2},
        "actors": {"count": 2, "envs_per_actor": 3, "n_buffer": 24},
        "learner": {"warmup_period": 60, "sync_interval": 5, "eval_interval": 0},
        "replay": {"capacity": 300, **replay},
        "stop": {"max_opts": 300},
    }
    return configured(table=table)


@pytest.mark.parametrize(
    "how", [{}, {"prioritized": True}, {"prioritized": True, "initial_priorities": "actor"}]
)
def test_the_storage_changes_nothing_that_is_learned(tmp_path: Path, how: dict[str, Any]) -> None:
    once, _ = trained(configuration(**how), tmp_path / "once")
    whole, _ = trained(configuration(**how, frame_storage="plain"), tmp_path / "whole")
    assert isinstance(once.ring, MemoryFrameRing)
    assert not isinstance(whole.ring, MemoryFrameRing)
    assert once.ring.inserted == whole.ring.inserted > 600
    assert once.ring.size == whole.ring.size == 300
    assert once.ring.total_bytes < whole.ring.total_bytes
    weights, again = (run.agent.model_info().arrays for run in (once, whole))
    assert all(weights[name].tobytes() == again[name].tobytes() for name in weights)
