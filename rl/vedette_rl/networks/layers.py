"""The forward pass behind an encoder, described once for numpy and torch. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vedette_rl.networks.observation import Image, NetworkInput

if TYPE_CHECKING:  # agents import networks
    from vedette_rl.agents.config import NetworkConfig

Array = Any
"""An array of numpy or a tensor of torch."""


@dataclass(frozen=True, slots=True)
class MlpSizes:
    """Layers of a multilayer perceptron: features in, of each layer, out.

    Args:
        sizes: with one size it is the identity.
        relu_last: the last layer's output goes through a ReLU too.
    """

    sizes: tuple[int, ...]
    relu_last: bool = False


class Layers:
    """The layers behind the encoder, and the forward pass through them.

    A subclass fills `mlps` and `forward`, which numpy and torch both call::

        class MyLayers(Layers):
            def __init__(self, config: MyConfig, sizes: tuple[int, ...], actions: int) -> None:
                self.mlps = {"q": MlpSizes((*sizes, actions))}

            def forward(self, xp: Any, net: Any, x_BF: Array) -> Array:
                return xp.tanh(net.q(x_BF))

    Attributes:
        mlps: sizes by name, in the order in which weights are drawn.
    """

    mlps: dict[str, MlpSizes]

    def constants(self, xp: Any) -> dict[str, Array]:
        """Arrays that are not learned, by name; float32 in the end."""
        return {}

    def forward(self, xp: Any, net: Any, x_BF: Array, *inputs: Array) -> Array:
        """The output.

        Args:
            xp: numpy or torch; use what both have.
            net: has the perceptrons and constants as attributes.
            x_BF: features ``(B, F)`` from the encoder.
            inputs: further inputs of the network.
        """
        raise NotImplementedError


LayersFactory = Callable[[Any, tuple[int, ...], int], Layers]
"""Makes `Layers` of a configuration, sizes ``(features, *hidden)``, and the size of an action."""


def layer_sizes(config: NetworkConfig, seen: NetworkInput, count: int) -> tuple[int, ...]:
    """The sizes ``(features, *hidden)`` behind an encoder of `count` features."""
    hidden = config.cnn_hidden_sizes if isinstance(seen, Image) else config.hidden_sizes
    return (count, *hidden)
