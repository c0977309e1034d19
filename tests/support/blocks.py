"""Blocks of runs as a queue gives them, made by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import gymnasium as gym
import numpy as np
import torch

from vedette_rl.agents.appo.policy import LOG_PROB, POLICY_ACTION
from vedette_rl.core import Columns
from vedette_rl.core.learning import BlockBatch, MinibatchPlace
from vedette_rl.envs.spaces import Spaces
from vedette_rl.testing import sampled_obs


def random_block(spaces: Spaces, runs: int, steps: int, seed: int) -> dict[str, torch.Tensor]:
    """A block ``(K, T, ...)`` of random rows in which episodes end, the last run a shorter one."""
    rng = np.random.default_rng(seed)
    rows = runs * steps
    flat: Columns = dict(sampled_obs(spaces.observation, rows, seed))
    after = sampled_obs(spaces.observation, rows, seed + 1000)
    flat |= {f"next_{name}": column for name, column in after.items()}
    space = spaces.action
    space.seed(seed)
    flat["action"] = np.stack([space.sample() for _ in range(rows)])
    if isinstance(space, gym.spaces.Box):
        size = int(np.prod(space.shape))
        flat[POLICY_ACTION] = rng.normal(size=(rows, size)).astype(np.float32)
    flat |= {
        "reward": rng.normal(size=rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.1,
        "truncated": rng.random(rows) < 0.1,
        "begins": np.zeros(rows, bool),
        LOG_PROB: rng.uniform(-2.0, -0.5, rows).astype(np.float32),
        "learned": np.ones(rows, bool),
    }
    block = {
        name: torch.from_numpy(column).unflatten(0, (runs, steps)) for name, column in flat.items()
    }
    block["learned"][-1, steps // 2 :] = False
    return block


def minibatches(
    block: Mapping[str, torch.Tensor], passes: int, size: int, seed: int = 0
) -> Iterator[BlockBatch]:
    """Every minibatch of every pass over a block, in order."""
    rng = np.random.default_rng(seed)
    rows = block["reward"].numel()
    count = rows // size
    for number in range(passes):
        order = rng.permutation(rows)
        for k in range(count):
            chosen = torch.from_numpy(order[k * size : (k + 1) * size].copy())
            batch = BlockBatch({**block, "chosen": chosen})
            batch.place = MinibatchPlace(number, passes, k, count)
            yield batch
