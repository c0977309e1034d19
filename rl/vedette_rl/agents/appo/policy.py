"""The half of APPO that acts. No torch.

Shapes: E environments, A logits of all heads, D heads or action dimensions, C choices of the
largest head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.actions import BoxActions, DiscreteActions, to_bounds
from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.appo.network import LOG_STD, CategoryLayers, NormalLayers
from vedette_rl.agents.network_agent import ActingHead, memory_columns, network_agent
from vedette_rl.agents.network_policy import NetworkPolicy
from vedette_rl.core.columns import LOG_PROB, Columns, RowColumn
from vedette_rl.core.learning import Agent
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.acting_network import ActingNetwork
from vedette_rl.networks.layers import Array

POLICY_ACTION = "policy_action"
"""The column of a Gaussian's own sample, before it is clipped to the bounds."""


class SampledPolicy(NetworkPolicy):
    """A `ColumnPolicy` that draws actions and notes how likely they were.

    `ranks` are not used: every environment explores alike, by the policy itself.
    """

    def __init__(
        self,
        network: ActingNetwork,
        config: AppoConfig,
        spaces: Spaces,
        *,
        ranks: NDArray[np.floating[Any]],
        seed: int,
    ) -> None:
        super().__init__(network)
        self._rng = np.random.default_rng(seed)
        self._acted: Columns = {}

    def acted_columns(self) -> Columns:
        """Of the actions that were drawn last."""
        return self._acted


class CategoryPolicy(SampledPolicy):
    """Draws one of finitely many actions, in one dimension or in several; greedily the likeliest.

    Its logits are an exported graph's second output.
    """

    outputs: ClassVar[tuple[str, ...]] = ("action", "logits")

    def __init__(
        self,
        network: ActingNetwork,
        config: AppoConfig,
        spaces: Spaces,
        *,
        ranks: NDArray[np.floating[Any]],
        seed: int,
    ) -> None:
        super().__init__(network, config, spaces, ranks=ranks, seed=seed)
        self._actions = DiscreteActions.from_space(config.name, spaces.action)
        self._starts = np.array(self._actions.starts)

    @classmethod
    def describe(cls, config: AppoConfig, spaces: Spaces) -> dict[str, Any] | None:
        """See `NetworkPolicy.describe`."""
        actions = DiscreteActions.from_space(config.name, spaces.action)
        return {"head": "categories", "actions": actions.describe()}

    def greedy(
        self, xp: Any, network: Callable[..., Array], obs: Any, *constants: Array
    ) -> tuple[Array, ...]:
        """Actions ``(E, *shape)`` and logits ``(E, A)``."""
        logits_EA = network(obs)
        return self._actions.greedy(xp, logits_EA), logits_EA

    def explore(self, obs: Columns) -> NDArray[np.int64]:
        """Actions ``(E, *shape)``, drawn from the policy."""
        logits_RC = self._actions.padded(self.network(obs)).astype(np.float64)  # R = E D
        logits_RC -= logits_RC.max(axis=1, keepdims=True)
        p_RC = np.exp(logits_RC)
        sum_R1 = p_RC.sum(axis=1, keepdims=True)
        reached_RC = np.cumsum(p_RC, axis=1) > self._rng.random((len(p_RC), 1)) * sum_R1
        choice_R = reached_RC.argmax(axis=1)
        log_prob_R = logits_RC[np.arange(len(choice_R)), choice_R] - np.log(sum_R1[:, 0])
        heads = self._actions.heads
        log_prob_E = log_prob_R.reshape(-1, heads).sum(axis=1)
        self._acted = {LOG_PROB: log_prob_E.astype(np.float32)}
        choice_ED: NDArray[np.int64] = choice_R.reshape(-1, heads) + self._starts
        return choice_ED.reshape(-1, *self._actions.shape)


class NormalPolicy(SampledPolicy):
    """Draws from a Gaussian and clips to the bounds of a Box; greedily the mean."""

    def __init__(
        self,
        network: ActingNetwork,
        config: AppoConfig,
        spaces: Spaces,
        *,
        ranks: NDArray[np.floating[Any]],
        seed: int,
    ) -> None:
        super().__init__(network, config, spaces, ranks=ranks, seed=seed)
        actions = BoxActions.from_space(config.name, spaces.action)
        self._shape = actions.shape
        self._size = actions.size
        self._bounds = config.log_std_min, config.log_std_max
        self.constants = actions.scaling

    @classmethod
    def describe(cls, config: AppoConfig, spaces: Spaces) -> dict[str, Any] | None:
        """See `NetworkPolicy.describe`."""
        return {
            "head": "normal",
            "actions": BoxActions.from_space(config.name, spaces.action).describe(),
            "log_std": [config.log_std_min, config.log_std_max],
            "deviations": LOG_STD,
        }

    def greedy(
        self, xp: Any, network: Callable[..., Array], obs: Any, *constants: Array
    ) -> tuple[Array, ...]:
        """Actions ``(E, *shape)`` within the environment's bounds."""
        mean_ED = network(obs)[:, : self._size]
        return (to_bounds(mean_ED, *constants).reshape(-1, *self._shape),)

    def explore(self, obs: Columns) -> NDArray[np.float32]:
        """Actions ``(E, *shape)``, drawn from the policy and clipped."""
        mean_ED, log_std_ED = np.split(self.network(obs), 2, axis=1)
        log_std_ED = log_std_ED.clip(*self._bounds)
        z_ED = self._rng.standard_normal(mean_ED.shape, np.float32)
        u_ED = (mean_ED + np.exp(log_std_ED) * z_ED).astype(np.float32)
        # of what is stored: with a small deviation its rounding is a part of z
        stored_ED = (u_ED - mean_ED) * np.exp(-log_std_ED)
        log_prob_ED = -0.5 * (np.square(stored_ED) + np.float32(_LOG_2_PI)) - log_std_ED
        self._acted = {LOG_PROB: log_prob_ED.sum(axis=1), POLICY_ACTION: u_ED}
        action: NDArray[np.float32] = to_bounds(u_ED, *self.constants)
        return action.reshape(-1, *self._shape)


_LOG_2_PI = math.log(2.0 * math.pi)


def head_of(space: gym.Space[Any]) -> ActingHead:
    """What acts in a space of actions."""
    if isinstance(space, gym.spaces.Box):
        return ActingHead(NormalPolicy, NormalLayers, BoxActions)
    return ActingHead(CategoryPolicy, CategoryLayers, DiscreteActions)


def acted_columns(config: AppoConfig, spaces: Spaces) -> Sequence[RowColumn]:
    """The columns that the policy fills."""
    columns = [RowColumn(LOG_PROB, "float32")]
    if isinstance(spaces.action, gym.spaces.Box):
        size = BoxActions.from_space(config.name, spaces.action).size
        columns.append(RowColumn(POLICY_ACTION, "float32", (size,)))
    return (*columns, *memory_columns(config, spaces))


def build_agent(config: AppoConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
    """The half that learns."""
    if config.core_size:
        from vedette_rl.agents.appo.recurrent import RecurrentAppoAgent

        return RecurrentAppoAgent(config, spaces, device=device, seed=seed)
    from vedette_rl.agents.appo.agent import AppoAgent

    return AppoAgent(config, spaces, device=device, seed=seed)


KIND = network_agent(AppoConfig, build_agent, head_of, columns=acted_columns)
