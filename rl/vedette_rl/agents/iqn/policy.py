"""The half of IQN that acts. No torch. Shapes: B rows, K quantile fractions, A actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.action_values import ValuePolicy
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.iqn.network import acting_layers
from vedette_rl.agents.network_agent import ActingHead, network_agent
from vedette_rl.agents.value_rescaling import rescale
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import Agent
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.acting_network import ActingNetwork
from vedette_rl.networks.layers import Array


class IqnPolicy(ValuePolicy):
    """A `Policy`: risk-neutral, on the mean of K samples of the return (section 3.2).

    While it explores, the K quantile fractions are drawn again at every step, for all environments;
    otherwise they are the midpoints of K equal parts, so that a greedy action is deterministic.
    """

    def __init__(
        self,
        network: ActingNetwork,
        config: IqnConfig,
        spaces: Spaces,
        *,
        ranks: NDArray[np.floating[Any]],
        seed: int,
    ) -> None:
        super().__init__(network, config, spaces, ranks=ranks, seed=seed)
        k = config.n_action_quantiles
        self.constants = (((np.arange(k) + 0.5) / k).astype(np.float32)[np.newaxis],)
        # its own stream: exploration draws from default_rng(seed)
        self._rng = np.random.default_rng([seed, 1])
        self._rescales = config.value_rescaling

    @classmethod
    def describe(cls, config: Any, spaces: Spaces) -> dict[str, Any] | None:
        """See `NetworkPolicy.describe`."""
        if (described := super().describe(config, spaces)) is None:
            return None
        fractions = config.n_action_quantiles
        return {
            **described,
            "head": "rescaled_quantiles" if config.value_rescaling else "quantiles",
            "cosines": config.n_cosines,
            "fractions": fractions,
        }

    def values(self, network: Callable[..., Array], obs: Any, *constants: Array) -> Array:
        """The mean over the quantile fractions ``(1, K)``: ``(B, A)``."""
        (taus_1K,) = constants
        return network(obs, taus_1K).mean(1)

    def learned(self, values: NDArray[Any]) -> NDArray[Any]:
        """See `ValuePolicy.learned`: the network's are restored, so that their mean is theirs."""
        learned: NDArray[Any] = rescale(np, values) if self._rescales else values
        return learned

    def explore(self, obs: Columns) -> NDArray[np.int64]:
        """Exploring actions ``(E, *shape)``, by values at fractions drawn now."""
        return self.choose(self.values(self.network, obs, self.draw_fractions()))

    def draw_fractions(self) -> NDArray[np.float32]:
        """Quantile fractions ``(1, K)`` in [0, 1)."""
        return self._rng.random(self.constants[0].shape, np.float32)


def build_agent(config: IqnConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
    """The half that learns."""
    if config.core_size:
        from vedette_rl.agents.iqn.recurrent import RecurrentIqnAgent

        return RecurrentIqnAgent(config, spaces, device=device, seed=seed)
    from vedette_rl.agents.iqn.agent import IqnAgent

    return IqnAgent(config, spaces, device=device, seed=seed)


KIND = network_agent(IqnConfig, build_agent, ActingHead(IqnPolicy, acting_layers, DiscreteActions))
