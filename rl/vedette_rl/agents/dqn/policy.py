"""The half of DQN that acts, and the network of both halves. No torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vedette_rl.agents.action_values import ValuePolicy
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.network_agent import network_agent
from vedette_rl.core.learning import Agent
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.layers import Array, Layers, MlpSizes


class QLayers(Layers):
    """Layers to action values; with `dueling` in two streams (Wang et al. 2016, equation 9).

    Args:
        config: its `dueling`.
        sizes: features, and of the hidden layers.
        actions: A.
    """

    def __init__(self, config: DqnConfig, sizes: tuple[int, ...], actions: int) -> None:
        self._dueling = config.dueling
        if config.dueling:
            self.mlps = {
                "torso": MlpSizes(sizes[:-1], relu_last=True),
                "value": MlpSizes((*sizes[-2:], 1)),
                "advantage": MlpSizes((*sizes[-2:], actions)),
            }
        else:
            self.mlps = {"q": MlpSizes((*sizes, actions))}

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """``(B, A)``."""
        if not self._dueling:
            return net.q(x_BF)
        x_BF = net.torso(x_BF)
        value_B1, advantage_BA = net.value(x_BF), net.advantage(x_BF)
        return value_B1 + advantage_BA - advantage_BA.mean(1, keepdims=True)


class DqnPolicy(ValuePolicy):
    """A `Policy`: epsilon-greedy or softmax on Q while it explores, greedy otherwise."""

    @classmethod
    def describe(cls, config: Any, spaces: Spaces) -> dict[str, Any] | None:
        """See `NetworkPolicy.describe`."""
        found = super().describe(config, spaces)
        return {**found, "head": "dueling"} if found and config.dueling else found

    def values(self, network: Callable[..., Array], obs: Any, *constants: Array) -> Array:
        """Q ``(B, A)``."""
        return network(obs)


def build_agent(config: DqnConfig, spaces: Spaces, *, device: str, seed: int) -> Agent:
    """The half that learns."""
    from vedette_rl.agents.dqn.agent import DqnAgent

    return DqnAgent(config, spaces, device=device, seed=seed)


KIND = network_agent(DqnConfig, build_agent, DqnPolicy, QLayers, DiscreteActions)
