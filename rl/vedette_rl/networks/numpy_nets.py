"""Networks in numpy, which act without torch.

On one vector of environments a forward pass costs some ten microseconds, and the process neither
loads torch (half a second, 200 MB) nor competes for its threads. Convolutions are slower than
torch's, and fast enough to play.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.learning import ModelInfo
from vedette_rl.errors import ModelMismatchError
from vedette_rl.networks.layers import LayersFactory, layer_sizes
from vedette_rl.networks.observation import (
    BuiltInInput,
    Encode,
    Shapes,
    count_features,
    encoder_shapes,
    numpy_encoder,
)

if TYPE_CHECKING:  # agents import networks
    from vedette_rl.agents.config import NetworkConfig


class NumpyNetwork:
    """A network in numpy that only acts, on the arrays of the last model it was given.

    Args:
        config: its layers' sizes.
        seen: the part of the observation that it takes.
        layers: describes the layers.
        size: of an action.

    Attributes:
        shapes: of the model's arrays.
    """

    def __init__(
        self,
        config: NetworkConfig,
        seen: BuiltInInput,
        layers: LayersFactory,
        size: int,
    ) -> None:
        self._seen = seen
        self._layers = layers(config, layer_sizes(config, seen, count_features(seen)), size)
        self.shapes: Shapes = encoder_shapes(seen)
        for name, mlp in self._layers.mlps.items():
            self.shapes |= mlp_shapes(name, mlp.sizes)
        self._encode: Encode | None = None
        constants = self._layers.constants(np).items()
        self._net = SimpleNamespace(**{k: v.astype(np.float32) for k, v in constants})

    def sync_model(self, model: ModelInfo) -> None:
        """Use these weights; see `vedette_rl.agents.network_agent.ActingNetwork`."""
        check_arrays(self.shapes, model.arrays)
        for name, mlp in self._layers.mlps.items():
            setattr(self._net, name, NumpyMlp(model.arrays, name, relu_last=mlp.relu_last))
        self._encode = numpy_encoder(self._seen, model.arrays)

    def __call__(
        self, obs: Mapping[str, NDArray[Any]], *inputs: NDArray[Any]
    ) -> NDArray[np.float32]:
        """The output for columns ``obs...``."""
        if self._encode is None:
            check_arrays(self.shapes, {})  # raises: it has no model to act on
            raise AssertionError("a network has arrays")
        output: NDArray[np.float32] = self._layers.forward(
            np, self._net, self._encode(obs), *inputs
        )
        return output


class NumpyMlp:
    """The layers under `name` in a model's arrays; of weights it keeps copies, of biases views.

    Args:
        arrays: of a model that was checked.
        name: the perceptron's.
        relu_last: the last layer's output goes through a ReLU too.
    """

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], name: str, *, relu_last: bool = False
    ) -> None:
        self._layers: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
        while (weight := arrays.get(f"{name}.{len(self._layers)}.weight")) is not None:
            bias = arrays[f"{name}.{len(self._layers)}.bias"]
            # Laid out as they are multiplied: many rows are acted on between two models.
            self._layers.append((np.ascontiguousarray(weight.T), bias))
        self._relu_layers = len(self._layers) - (not relu_last)

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The last layer's output ``(..., size)``."""
        if x.ndim > 2:  # products of two matrices are the fast ones
            return self(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)
        for k, (weight, bias) in enumerate(self._layers):
            x = x.dot(weight)
            x += bias
            if k < self._relu_layers:
                np.maximum(x, 0.0, out=x)
        return x


def mlp_shapes(name: str, sizes: Sequence[int]) -> Shapes:
    """The arrays of a perceptron of these sizes under this name: torch's names, torch's shapes."""
    shapes: Shapes = {}
    for k, (before, after) in enumerate(pairwise(sizes)):
        shapes[f"{name}.{k}.weight"] = (after, before)
        shapes[f"{name}.{k}.bias"] = (after,)
    return shapes


def check_arrays(expected: Mapping[str, tuple[int, ...]], got: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that are not exactly those expected.

    Raises:
        ModelMismatchError: names the first array that is missing, unknown or of another shape.
    """
    for name, shape in expected.items():
        wanted = f"float32 {shape}"
        if name not in got:
            raise ModelMismatchError(name, wanted, "nothing")
        array = got[name]
        if array.shape != shape or array.dtype != np.float32:
            raise ModelMismatchError(name, wanted, f"{array.dtype} {array.shape}")
    for name in got:
        if name not in expected:
            raise ModelMismatchError(name, "nothing", "an array")
