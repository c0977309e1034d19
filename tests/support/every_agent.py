"""Every agent that comes with Vedette, as its registry lists them, so that the next one is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import UnsupportedSpaceError

AGENTS = tuple(BUILT_IN)
OF_SAMPLES = tuple(n for n, kind in BUILT_IN.items() if kind.config().usual_queue is None)
"""Those that learn from samples which are drawn again and again, and not from blocks of a queue."""

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
ACTIONS: tuple[gym.Space[Any], ...] = (
    gym.spaces.Discrete(3),
    gym.spaces.Box(-1, 1, (2,), np.float32),
)


def spaces_for(
    agent: str,
    observation: gym.Space[Any] = VECTOR,
    actions: Sequence[gym.Space[Any]] = ACTIONS,
) -> Spaces:
    """Spaces with the first action space that an agent takes."""
    kind = BUILT_IN[agent]
    for action in actions:
        spaces = Spaces(observation, action)
        try:
            kind.check(kind.config(), spaces)
        except UnsupportedSpaceError:
            continue
        return spaces
    raise AssertionError(f"{agent} takes none of {actions}")


def takes_discrete(agent: str) -> bool:
    """Whether an agent's actions are numbers of choices, not amounts."""
    return isinstance(spaces_for(agent).action, gym.spaces.Discrete)
