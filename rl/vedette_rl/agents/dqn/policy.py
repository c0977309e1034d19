"""The half of DQN that acts. No torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.action_values import ValuePolicy
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.network import QLayers
from vedette_rl.agents.network_agent import ActingHead, network_agent
from vedette_rl.agents.value_rescaling import rescale, restore
from vedette_rl.core.learning import Agent
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.acting_network import ActingNetwork
from vedette_rl.networks.layers import Array


class DqnPolicy(ValuePolicy):
    """A `Policy`: epsilon-greedy or softmax on Q while it explores, greedy otherwise."""

    def __init__(
        self,
        network: ActingNetwork,
        config: DqnConfig,
        spaces: Spaces,
        *,
        ranks: NDArray[np.floating[Any]],
        seed: int,
    ) -> None:
        super().__init__(network, config, spaces, ranks=ranks, seed=seed)
        self._rescales = config.value_rescaling

    @classmethod
    def describe(cls, config: Any, spaces: Spaces) -> dict[str, Any] | None:
        """See `NetworkPolicy.describe`."""
        described = super().describe(config, spaces)
        return {**described, "head": "dueling"} if described and config.dueling else described

    def values(self, network: Callable[..., Array], obs: Any, *constants: Array) -> Array:
        """Q ``(B, A)``."""
        return network(obs)

    def bootstrap(
        self, r_t: NDArray[Any], discount_t: NDArray[Any], v_t: NDArray[Any]
    ) -> NDArray[Any]:
        """The target, of rescaled values where the network's are."""
        if not self._rescales:
            return super().bootstrap(r_t, discount_t, v_t)
        target: NDArray[Any] = rescale(np, super().bootstrap(r_t, discount_t, restore(np, v_t)))
        return target


def build_agent(config: DqnConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
    """The half that learns."""
    if config.core_size:
        from vedette_rl.agents.dqn.recurrent import RecurrentDqnAgent

        return RecurrentDqnAgent(config, spaces, device=device, seed=seed)
    from vedette_rl.agents.dqn.agent import DqnAgent

    return DqnAgent(config, spaces, device=device, seed=seed)


KIND = network_agent(DqnConfig, build_agent, ActingHead(DqnPolicy, QLayers, DiscreteActions))
