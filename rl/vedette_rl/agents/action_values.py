"""Acting on the values of finitely many actions, and the TD errors that actors report. No torch.

Shapes: E environments, B transitions, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.exploration import ExplorationConfig, make_exploration
from vedette_rl.agents.network_agent import ActingNetwork, NetworkPolicy
from vedette_rl.core.columns import Columns, select_part
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.layers import Array


class ActionValueConfig(Protocol):
    """The configuration of an agent that acts on action values."""

    @property
    def name(self) -> str: ...

    @property
    def discount(self) -> float: ...

    @property
    def exploration(self) -> ExplorationConfig: ...


class ValuePolicy(NetworkPolicy):
    """A policy on action values, which explores by its configuration. See `NetworkPolicy`.

    Args:
        network: gives the values.
        config: the agent's.
        spaces: the environment's.
        ranks: exploration ranks of the environments ``(E,)`` in [0, 1].
        seed: of the exploration.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete.
    """

    outputs: ClassVar[tuple[str, ...]] = ("action", "q")

    def __init__(
        self,
        network: ActingNetwork,
        config: ActionValueConfig,
        spaces: Spaces,
        *,
        ranks: NDArray[np.floating[Any]],
        seed: int,
    ) -> None:
        super().__init__(network)
        self._start = DiscreteActions.from_space(config.name, spaces.action).start
        self._exploration = make_exploration(config.exploration, ranks, seed)
        self._discount = config.discount

    def values(self, network: Callable[..., Array], obs: Any, *constants: Array) -> Array:
        """Action values ``(B, A)`` by a network of numpy or torch."""
        raise NotImplementedError

    def greedy(
        self, xp: Any, network: Callable[..., Array], obs: Any, *constants: Array
    ) -> tuple[Array, ...]:
        """The best actions ``(B,)``, and the values of all."""
        q_BA = self.values(network, obs, *constants)
        action_B = q_BA.argmax(1)
        return action_B + self._start if self._start else action_B, q_BA

    def explore(self, obs: Columns) -> NDArray[np.int64]:
        """Exploring actions ``(E,)``."""
        return self.choose(self.values(self.network, obs, *self.constants))

    def choose(self, q_EA: NDArray[np.float32]) -> NDArray[np.int64]:
        """Exploring actions ``(E,)`` as the environment calls them, on these values."""
        chosen = self._exploration.choose(q_EA, self.version)
        return chosen + self._start if self._start else chosen

    def td_errors(self, transitions: Columns) -> NDArray[np.float32]:
        """``|r + discount**n max_a Q(s', a) - Q(s, a)|``: ``(B,)``.

        The network that acts bootstraps itself.
        """
        a_tm1 = transitions["action"] - self._start
        q_tm1_BA = self.values(self.network, select_part(transitions, "obs"), *self.constants)
        q_tm1 = np.take_along_axis(q_tm1_BA, a_tm1[:, np.newaxis], 1)[:, 0]
        q_t_BA = self.values(self.network, select_part(transitions, "next_obs"), *self.constants)
        discount_t = self._discount ** transitions["n_steps"].astype(np.float32)
        discount_t[transitions["terminated"]] = 0.0
        target = transitions["reward"] + discount_t * q_t_BA.max(axis=1)
        errors: NDArray[np.float32] = np.abs(target - q_tm1)
        return errors.astype(np.float32, copy=False)
