"""The network of DQN, for numpy, torch and exporters. Shapes: B rows, F features, A actions."""

from __future__ import annotations

from typing import Any

from vedette_rl.agents.dqn.config import DqnConfig
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
