"""Acting on the values of finitely many actions, and the TD errors that actors report. No torch.

An action of several dimensions (MultiDiscrete) has a head of values for each, which chooses by
itself; its value is the mean of its heads' (Seyde et al. 2023, arXiv:2210.12566, after the branches
of Tavakoli et al. 2018, arXiv:1711.08946).

Shapes: E environments, B transitions, A values of actions of all heads, D heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.exploration import ExplorationConfig, make_exploration
from vedette_rl.agents.network_policy import NetworkPolicy
from vedette_rl.core.columns import Columns, select_part
from vedette_rl.envs.spaces import Spaces
from vedette_rl.import_by_name import is_import_name
from vedette_rl.networks.acting_network import ActingNetwork
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
        seed: the seed of the exploration.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete and not MultiDiscrete.
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
        self._actions = actions = DiscreteActions.from_space(config.name, spaces.action)
        # each head explores by itself
        ranks = ranks if actions.heads == 1 else np.repeat(ranks, actions.heads)
        self._exploration = make_exploration(config.exploration, ranks, seed)
        self._others = np.random.default_rng([seed, 2])
        self._counts = np.array(actions.counts)
        self._starts = np.array(actions.starts)
        self._discount = config.discount

    @classmethod
    def describe(cls, config: Any, spaces: Spaces) -> dict[str, Any] | None:
        """See `NetworkPolicy.describe`; None where exploration is custom."""
        if is_import_name(config.exploration.kind):
            return None
        kind = "linear" if config.exploration.kind == "auto" else config.exploration.kind
        actions = DiscreteActions.from_space(config.name, spaces.action)
        return {
            "head": "values",
            "actions": actions.describe(),
            "exploration": {**config.exploration.model_dump(mode="json"), "kind": kind},
        }

    def values(self, network: Callable[..., Array], obs: Any, *constants: Array) -> Array:
        """Action values ``(B, A)`` by a network of numpy or torch, of all heads side by side."""
        raise NotImplementedError

    def greedy(
        self, xp: Any, network: Callable[..., Array], obs: Any, *constants: Array
    ) -> tuple[Array, ...]:
        """The best actions ``(B, *shape)``, and the values of all."""
        q_BA = self.values(network, obs, *constants)
        return self._actions.greedy(xp, q_BA), q_BA

    def explore(self, obs: Columns) -> NDArray[np.int64]:
        """Exploring actions ``(E, *shape)``."""
        return self.choose(self.values(self.network, obs, *self.constants))

    def choose(self, q_EA: NDArray[np.float32]) -> NDArray[np.int64]:
        """Exploring actions ``(E, *shape)`` as the environment calls them, on these values."""
        actions = self._actions
        if not actions.shape:
            chosen = self._exploration.choose(q_EA, self.version)
            start = actions.starts[0]
            return chosen + start if start else chosen
        chosen = self._exploration.choose(actions.padded(q_EA), self.version)
        chosen_ED = chosen.reshape(-1, actions.heads)
        # a random choice among the most actions of a head, where this head has fewer
        drawn_ED = self._others.integers(self._counts, size=chosen_ED.shape)
        action: NDArray[np.int64] = np.where(chosen_ED < self._counts, chosen_ED, drawn_ED)
        action += self._starts
        return action.reshape(-1, *actions.shape)

    def td_errors(self, transitions: Columns) -> NDArray[np.float32]:
        """``|r + discount**n max_a Q(s', a) - Q(s, a)|``: ``(B,)``.

        The network that acts bootstraps itself. Errors are of values as they are `learned`.
        """
        action = transitions["action"]
        offsets = self._actions.offsets
        a_tm1_BD = action.reshape(len(action), -1) - self._starts + offsets
        q_tm1_BA = self.values(self.network, select_part(transitions, "obs"), *self.constants)
        q_tm1 = np.take_along_axis(q_tm1_BA, a_tm1_BD, 1).mean(axis=1)
        q_t_BA = self.values(self.network, select_part(transitions, "next_obs"), *self.constants)
        v_t = np.maximum.reduceat(q_t_BA, offsets, axis=1).mean(axis=1)
        discount_t = self._discount ** transitions["n_steps"].astype(np.float32)
        discount_t[transitions["terminated"]] = 0.0
        target = self.bootstrap(transitions["reward"], discount_t, v_t)
        errors: NDArray[np.float32] = np.abs(self.learned(target) - self.learned(q_tm1))
        return errors.astype(np.float32, copy=False)

    def learned(self, values: NDArray[Any]) -> NDArray[Any]:
        """These values as the learner's network has them, which may be others than those of
        `values`."""
        return values

    def bootstrap(
        self, r_t: NDArray[Any], discount_t: NDArray[Any], v_t: NDArray[Any]
    ) -> NDArray[Any]:
        """The target ``(B,)``: ``r + discount v'``."""
        target: NDArray[Any] = r_t + discount_t * v_t
        return target
