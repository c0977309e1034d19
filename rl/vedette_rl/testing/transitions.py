"""Random transitions for tests."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, empty_columns
from vedette_rl.envs.layout import ObservationLayout
from vedette_rl.envs.spaces import Spaces, transition_dtype


def sampled_obs(space: gym.Space[Any], rows: int, seed: int) -> Columns:
    """Observations drawn from `space` as columns of `rows` rows."""
    space.seed(seed)
    layout = ObservationLayout(space)
    columns = layout.empty(rows)
    for row in range(rows):
        layout.write(columns, row, space.sample())
    return columns


def sampled_transitions(spaces: Spaces, rows: int, seed: int) -> Columns:
    """Transitions of one step whose observations and actions are drawn from `spaces`; a tenth ends
    an episode each way."""
    rng = np.random.default_rng(seed)
    columns = empty_columns(transition_dtype(spaces), rows)
    before = sampled_obs(spaces.observation, rows, seed)
    after = sampled_obs(spaces.observation, rows, seed + 1)
    for name, column in before.items():
        columns[name][:] = column
        columns[f"next_{name}"][:] = after[name]
    columns["action"][:] = sampled_actions(spaces.action, rows, seed)
    columns["reward"][:] = rng.normal(size=rows)
    columns["terminated"][:] = rng.random(rows) < 0.1
    columns["truncated"][:] = rng.random(rows) < 0.1
    columns["n_steps"][:] = 1
    return columns


def sampled_actions(space: gym.Space[Any], rows: int, seed: int) -> NDArray[Any]:
    """Actions drawn from `space` ``(rows, *shape)``."""
    space.seed(seed)
    return np.stack([np.asarray(space.sample()) for _ in range(rows)])
