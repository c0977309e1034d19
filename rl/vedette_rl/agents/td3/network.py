"""The policy network of TD3, for numpy, torch and exporters.

Shapes: B rows, F features, D action dimensions.
"""

from __future__ import annotations

from typing import Any

from vedette_rl.agents.td3.config import Td3Config
from vedette_rl.networks.layers import Array, Layers, MlpSizes


class DeterministicLayers(Layers):
    """mu(s): the action, in [-1, 1].

    Args:
        config: its `policy_architecture`.
        sizes: features, and of the hidden layers.
        dimensions: D.
    """

    def __init__(self, config: Td3Config, sizes: tuple[int, ...], dimensions: int) -> None:
        architecture = config.policy_architecture
        self.mlps = {"policy": MlpSizes((*sizes, dimensions), architecture=architecture)}

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """``(B, D)``."""
        return xp.tanh(net.policy(x_BF))
