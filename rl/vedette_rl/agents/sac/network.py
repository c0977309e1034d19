"""The policy network of SAC, for numpy, torch and exporters.

Shapes: B rows, F features, D action dimensions.
"""

from __future__ import annotations

from typing import Any

from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.networks.layers import Array, Layers, MlpSizes


class GaussianLayers(Layers):
    """The Gaussian of which an action is drawn, before it is squashed.

    Args:
        config: its `policy_architecture`.
        sizes: features, and of the hidden layers.
        dimensions: D.
    """

    def __init__(self, config: SacConfig, sizes: tuple[int, ...], dimensions: int) -> None:
        self.mlps = {
            "policy": MlpSizes((*sizes, 2 * dimensions), architecture=config.policy_architecture)
        }

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """Means and, unbounded yet, log standard deviations side by side: ``(B, 2 D)``."""
        return net.policy(x_BF)


class NormalizedGaussianLayers(GaussianLayers):
    """The same with batch normalization in front of each linear layer, for the learner alone.

    What acts has `GaussianLayers`, into which the normalization is folded
    (`vedette_rl.networks.batch_norm_folding`).
    """

    def __init__(self, config: SacConfig, sizes: tuple[int, ...], dimensions: int) -> None:
        self.mlps = {"policy": MlpSizes((*sizes, 2 * dimensions), architecture="batch_norm")}

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """See `GaussianLayers`; a further input, True, normalises by this batch's statistics and
        counts it in the running ones."""
        (output_BE,) = net.policy(x_BF, *inputs)
        return output_BE
