"""The network of IQN, for numpy, torch and exporters.

It gives Z_tau(s, .): samples of the return's distribution, by quantile fraction. Section and
equation numbers are those of Dabney et al. 2018.

Shapes: B rows, N quantile fractions, A actions, F features, I cosines.
"""

from __future__ import annotations

import math
from typing import Any

from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.value_rescaling import restore
from vedette_rl.networks.layers import Array, Layers, MlpSizes


class QuantileLayers(Layers):
    """f(psi(s) * phi(tau)) (section 3.1). f is the last hidden layer and the output.

    Args:
        config: its `n_cosines`.
        sizes: features, and of the hidden layers.
        actions: A.
    """

    def __init__(self, config: IqnConfig, sizes: tuple[int, ...], actions: int) -> None:
        self._n_cosines = config.n_cosines
        self.mlps = {
            "psi": MlpSizes(sizes[:-1], relu_last=True),
            "phi": MlpSizes((config.n_cosines, sizes[-2]), relu_last=True),
            "f": MlpSizes((*sizes[-2:], actions)),
        }

    def constants(self, xp: Any) -> dict[str, Array]:
        """pi i, from i = 0 (equation 4)."""
        return {"cosines": math.pi * xp.arange(self._n_cosines)}

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """``(B, N, A)``, at the quantile fractions ``(B, N)`` or ``(1, N)`` given."""
        (taus_BN,) = inputs
        psi_B1F = net.psi(x_BF)[:, None]
        phi_BNF = net.phi(xp.cos(taus_BN[:, :, None] * net.cosines))
        return net.f(psi_B1F * phi_BNF)


class RestoredQuantileLayers(QuantileLayers):
    """The same with `value_rescaling`, to the returns themselves: for acting."""

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """``(B, N, A)``, not rescaled."""
        return restore(xp, super().forward(xp, net, x_BF, *inputs))


def acting_layers(config: IqnConfig, sizes: tuple[int, ...], actions: int) -> QuantileLayers:
    """Layers to samples of the returns; see `QuantileLayers`."""
    layers = RestoredQuantileLayers if config.value_rescaling else QuantileLayers
    return layers(config, sizes, actions)
