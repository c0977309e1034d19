"""Blocks of runs as a queue gives them, made by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.appo.policy import acted_columns
from vedette_rl.core import RowColumn
from vedette_rl.core.columns import LOG_PROB
from vedette_rl.core.learning import BlockBatch, MinibatchPlace
from vedette_rl.envs.spaces import Spaces
from vedette_rl.testing import sampled_block


def random_block(
    spaces: Spaces, runs: int, steps: int, seed: int, further: Sequence[RowColumn] = ()
) -> dict[str, torch.Tensor]:
    """A block ``(K, T, ...)`` of random rows in which episodes end, the last run a shorter one."""
    declared = (*acted_columns(AppoConfig(), spaces), *further)
    columns = sampled_block(spaces, runs, steps, seed, declared)
    log_prob = np.random.default_rng(seed).uniform(-2.0, -0.5, (runs, steps))
    columns[LOG_PROB] = log_prob.astype(np.float32)
    return {name: torch.from_numpy(column) for name, column in columns.items()}


def minibatches(
    block: Mapping[str, torch.Tensor],
    passes: int,
    size: int,
    seed: int = 0,
    *,
    whole_runs: bool = False,
) -> Iterator[BlockBatch]:
    """Every minibatch of every pass over a block, in order."""
    rng = np.random.default_rng(seed)
    rows = block["reward"].numel()
    steps = block["reward"].shape[1]
    count = rows // size
    for number in range(passes):
        order = rng.permutation(rows)
        if whole_runs:
            order = (rng.permutation(rows // steps)[:, None] * steps + np.arange(steps)).ravel()
        for k in range(count):
            chosen = torch.from_numpy(order[k * size : (k + 1) * size].copy())
            batch = BlockBatch({**block, "chosen": chosen})
            batch.place = MinibatchPlace(number, passes, k, count)
            yield batch
