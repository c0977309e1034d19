"""Networks in numpy, which act without torch.

On one vector of environments a forward pass costs some ten microseconds, and the process neither
loads torch (half a second, 200 MB) nor competes for its threads. Convolutions are slower than
torch's, and fast enough to play.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.errors import ModelMismatchError
from vedette_rl.networks.layers import (
    MEAN,
    SCALE,
    LayersFactory,
    MlpSizes,
    NormalizedColumns,
    layer_sizes,
    normalize_columns,
)
from vedette_rl.networks.observation import (
    NORM_EPS,
    BuiltInInput,
    Encode,
    Shapes,
    count_features,
    encoder_shapes,
    numpy_encoder,
)

if TYPE_CHECKING:  # agents import networks
    from vedette_rl.agents.config import NetworkConfig
    from vedette_rl.agents.network_agent import ActingNetwork


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
            self.shapes |= mlp_shapes(name, mlp)
        self._encode: Encode | None = None
        constants = self._layers.constants(np).items()
        self._net = SimpleNamespace(**{k: v.astype(np.float32) for k, v in constants})

    def sync_model(self, model: ModelInfo) -> None:
        """Use these weights; see `vedette_rl.agents.network_agent.ActingNetwork`."""
        check_arrays(self.shapes, model.arrays)
        for name, mlp in self._layers.mlps.items():
            setattr(self._net, name, NumpyMlp(model.arrays, name, mlp))
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
        sizes: its layers.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], name: str, sizes: MlpSizes) -> None:
        self._sizes = sizes
        # Laid out as they are multiplied: many rows are acted on between two models.
        self._layers = [
            (np.ascontiguousarray(arrays[f"{name}.{k}.weight"].T), arrays[f"{name}.{k}.bias"])
            for k in range(len(sizes.linear))
        ]

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The last layer's output ``(..., size)``."""
        if x.ndim > 2:  # products of two matrices are the fast ones
            return self(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)
        output: NDArray[np.float32] = self._sizes.forward(self, x)
        return output

    def linear(self, k: int, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `PerceptronSteps`."""
        weight, bias = self._layers[k]
        x = x.dot(weight)
        x += bias
        return x

    def normalize(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `PerceptronSteps`."""
        x = x - x.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", x, x)[:, np.newaxis] * np.float32(1.0 / x.shape[1])
        x /= np.sqrt(variance + np.float32(NORM_EPS))
        return x

    def relu(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `PerceptronSteps`."""
        return np.maximum(x, 0.0, out=x)


class NormalizedNetwork:
    """A network that acts, behind a model's running statistics of the observation.

    Args:
        network: acts on normalised columns.
        columns: those that are normalised.

    Attributes:
        shapes: of the model's arrays.
    """

    def __init__(self, network: ActingNetwork, columns: NormalizedColumns) -> None:
        self._network, self._columns = network, columns
        self.shapes: Shapes = {**network.shapes, **columns.shapes}
        self._mean: dict[str, NDArray[np.float32]] = {}
        self._scale: dict[str, NDArray[np.float32]] = {}

    def sync_model(self, model: ModelInfo) -> None:
        """Use these weights and statistics; see `ActingNetwork`."""
        shapes = self._columns.shapes
        own = {name: array for name, array in model.arrays.items() if name in shapes}
        check_arrays(shapes, own)
        rest = {name: array for name, array in model.arrays.items() if name not in shapes}
        self._network.sync_model(replace(model, arrays=rest))
        self._mean, self._scale = (self._columns.split(own[name]) for name in (MEAN, SCALE))

    def __call__(self, obs: Columns, *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output for columns ``obs...``."""
        return self._network(normalize_columns(obs, self._mean, self._scale), *inputs)


def mlp_shapes(name: str, sizes: MlpSizes) -> Shapes:
    """The arrays of a perceptron of these sizes under this name: torch's names, torch's shapes."""
    shapes: Shapes = {}
    for k, (before, after) in enumerate(sizes.linear):
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
