"""Acting on the values of finitely many actions, and the TD errors that actors tell. No torch.

Shapes: E environments, B transitions, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.core.columns import Columns, select_part
from vedette_rl.exploration import ExplorationConfig, make_exploration

Values = Callable[[Columns], NDArray[np.float32]]
"""Action values ``(B, A)`` of columns ``obs...``."""


class ActionValueConfig(Protocol):
    """The configuration of an agent that acts on action values."""

    @property
    def name(self) -> str: ...

    @property
    def discount(self) -> float: ...

    @property
    def exploration(self) -> ExplorationConfig: ...


class ActionChooser:
    """What every policy on action values has: how it explores, and what an action is called.

    Args:
        config: the agent's.
        actions: the environment's.
        positions: of the environments on the exploration's ladder, ``(E,)`` in [0, 1].
        seed: of the exploration.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete.
    """

    def __init__(
        self,
        config: ActionValueConfig,
        actions: gym.Space[Any],
        ranks: NDArray[np.floating[Any]],
        seed: int,
    ) -> None:
        self.actions = DiscreteActions.from_space(config.name, actions)
        self._exploration = make_exploration(config.exploration, ranks, seed)
        self._discount = config.discount

    def choose(
        self, q_EA: NDArray[np.float32], version: int, *, explore: bool
    ) -> NDArray[np.int64]:
        """Actions ``(E,)`` as the environment calls them, on the values of a model's version."""
        chosen: NDArray[np.int64] = (
            self._exploration.choose(q_EA, version) if explore else q_EA.argmax(1)
        )
        return chosen + self.actions.start if self.actions.start else chosen

    def td_errors(self, q: Values, transitions: Columns) -> NDArray[np.float32]:
        """|TD errors| ``(B,)`` of transitions, by these values."""
        return greedy_td_errors(
            q, transitions, discount=self._discount, first_action=self.actions.start
        )


def greedy_td_errors(
    q: Values,
    transitions: Columns,
    *,
    discount: float,
    first_action: int,
) -> NDArray[np.float32]:
    """``|r + discount**n max_a Q(s', a) - Q(s, a)|``: ``(B,)``.

    Args:
        q: of the network that acts: it bootstraps itself.
        transitions: whole ones.
        discount: gamma, of a step.
        first_action: what the first action is called.
    """
    a_tm1 = transitions["action"] - first_action
    q_tm1 = np.take_along_axis(q(select_part(transitions, "obs")), a_tm1[:, np.newaxis], 1)[:, 0]
    q_t = q(select_part(transitions, "next_obs")).max(axis=1)
    discount_t = discount ** transitions["n_steps"].astype(np.float32)
    discount_t[transitions["terminated"]] = 0.0
    errors: NDArray[np.float32] = np.abs(transitions["reward"] + discount_t * q_t - q_tm1)
    return errors.astype(np.float32, copy=False)
