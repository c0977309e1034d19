"""The networks of APPO, for numpy, torch and exporters.

Shapes: B rows, F features, A logits of all heads, D action dimensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.networks.layers import Array, Layers, LayersFactory, MlpSizes

if TYPE_CHECKING:  # actors in numpy do without torch
    from torch import nn

VALUE = "value"
"""The perceptron that actors do not have."""

LOG_STD = "log_std"
"""The logarithms of the Gaussian's deviations, learned by themselves."""


class CategoryLayers(Layers):
    """Layers to the logits of finitely many actions.

    Args:
        config: its `policy_architecture`.
        sizes: features, and of the hidden layers.
        size: A.
    """

    def __init__(self, config: AppoConfig, sizes: tuple[int, ...], size: int) -> None:
        self.mlps = {"policy": MlpSizes((*sizes, size), architecture=config.policy_architecture)}

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """``(B, A)``."""
        return net.policy(x_BF)


class NormalLayers(Layers):
    """Layers to the means of a Gaussian, whose deviations do not depend on what is seen.

    Args:
        config: its `policy_architecture`.
        sizes: features, and of the hidden layers.
        size: D.
    """

    def __init__(self, config: AppoConfig, sizes: tuple[int, ...], size: int) -> None:
        self.mlps = {"policy": MlpSizes((*sizes, size), architecture=config.policy_architecture)}
        self.vectors = {LOG_STD: size}

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """Means and, unbounded yet, log standard deviations side by side: ``(B, 2 D)``."""
        mean_BD = net.policy(x_BF)
        return xp.concatenate([mean_BD, xp.broadcast_to(net.log_std, mean_BD.shape)], 1)


class PolicyValueLayers(Layers):
    """A policy's layers, and beside them those of the value: what learns.

    Args:
        policy: the layers that act.
        config: its `policy_architecture`, of the value's too.
        sizes: features, and of the hidden layers.
    """

    def __init__(self, policy: Layers, config: AppoConfig, sizes: tuple[int, ...]) -> None:
        self._policy = policy
        value = MlpSizes((*sizes, 1), architecture=config.policy_architecture)
        self.mlps = {**policy.mlps, VALUE: value}
        self.vectors = policy.vectors

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """The policy's output and, as the last column, the value: ``(B, A + 1)``."""
        return xp.concatenate([self._policy.forward(xp, net, x_BF), net.value(x_BF)], 1)


def with_value(layers: LayersFactory) -> LayersFactory:
    """Makes the layers that learn beside those that act."""

    def make(config: AppoConfig, sizes: tuple[int, ...], size: int) -> Layers:
        return PolicyValueLayers(layers(config, sizes, size), config, sizes)

    return make


_GAINS = {"policy": 0.01, VALUE: 1.0}
"""Of the last layers' weights: at first all actions are as likely (Andrychowicz et al. 2021)."""

_HIDDEN_GAIN = 2.0**0.5


def initialize(network: nn.Module, initial_log_std: float) -> None:
    """Orthogonal weights, biases of 0 (Stable-Baselines3's PPO; Saxe et al. 2014).

    Args:
        network: of `PolicyValueLayers`; a custom encoder stays as its author makes it.
        initial_log_std: the Gaussian's, where it is one.
    """
    from torch import nn

    for name, gain in _GAINS.items():
        layers = _linear_layers(network, name)
        for layer in layers:
            nn.init.orthogonal_(layer.weight, gain if layer is layers[-1] else _HIDDEN_GAIN)
            nn.init.zeros_(layer.bias)
    if hasattr(network, LOG_STD):
        nn.init.constant_(network.get_parameter(LOG_STD), initial_log_std)


def value_layer(network: nn.Module) -> nn.Linear:
    """The layer of `PolicyValueLayers` whose output is the value."""
    return _linear_layers(network, VALUE)[-1]


def _linear_layers(network: nn.Module, perceptron: str) -> list[nn.Linear]:
    from torch import nn

    layers = []
    for layer in network.get_submodule(perceptron).children():
        assert isinstance(layer, nn.Linear), "a perceptron is a list of its linear layers"
        layers.append(layer)
    return layers
