"""Spaces and batches that the agents' tests share."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
import torch

from vedette_rl.envs.spaces import Spaces

Batch = dict[str, torch.Tensor]


@pytest.fixture
def vector_discrete() -> Spaces:
    return Spaces(gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(3))


@pytest.fixture
def vector_box() -> Spaces:
    low, high = np.array([-2, 0], np.float32), np.array([2, 10], np.float32)
    return Spaces(gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Box(low, high))


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """A random batch for spaces, with transitions of 1 to 3 steps that end, are cut, or go on."""

    def make(spaces: Spaces, rows: int, seed: int = 0) -> Batch:
        rng = np.random.default_rng(seed)
        spaces.observation.seed(seed)
        spaces.action.seed(seed)
        obs = np.stack([spaces.observation.sample() for _ in range(rows)])
        next_obs = np.stack([spaces.observation.sample() for _ in range(rows)])
        columns = {
            "obs": obs,
            "action": np.stack([spaces.action.sample() for _ in range(rows)]),
            "reward": rng.normal(size=rows).astype(np.float32),
            "next_obs": next_obs,
            "terminated": rng.random(rows) < 0.2,
            "truncated": rng.random(rows) < 0.2,
            "n_steps": rng.integers(1, 4, rows).astype(np.uint8),
        }
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    return make
