"""Networks in numpy, which act without torch.

On one vector of environments a forward pass costs some ten microseconds, and the process neither
loads torch (half a second, 200 MB) nor competes for its threads. Convolutions are slower than
torch's, and fast enough to play.

Shapes: B rows, F features, C channels, H height, W width, K a kernel's side, O channels out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.errors import ModelMismatchError
from vedette_rl.networks.acting_network import (
    ActingNetwork,
    RecurrentActingNetwork,
    SyncedNetwork,
)
from vedette_rl.networks.config import NetworkConfig
from vedette_rl.networks.core import GruSizes, NumpyGru
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
    FlatPart,
    Image,
    Parts,
    Shapes,
    count_features,
    encoder_shapes,
)

Encode = Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]
"""From an observation's columns to features ``(B, F)``."""


class _NumpyParts:
    """An encoder and layers in numpy, and what may be between them.

    Args:
        config: the configuration with its layers' sizes.
        seen: the part of the observation that it takes.
        layers: describes the layers.
        size: the size of an action.

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
        self.shapes |= {name: (size,) for name, size in self._layers.vectors.items()}
        self._encode: Encode | None = None
        constants = self._layers.constants(np).items()
        self._net = SimpleNamespace(**{k: v.astype(np.float32) for k, v in constants})

    def sync_model(self, model: ModelInfo) -> None:
        """Use these weights; see `SyncedNetwork`."""
        check_arrays(self.shapes, model.arrays)
        for name, mlp in self._layers.mlps.items():
            setattr(self._net, name, NumpyMlp(model.arrays, name, mlp))
        for name in self._layers.vectors:
            setattr(self._net, name, model.arrays[name])
        self._encode = numpy_encoder(self._seen, model.arrays)

    def features(self, obs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """The encoder's features ``(B, F)`` of columns ``obs...``.

        Raises:
            ModelMismatchError: there is no model yet.
        """
        if self._encode is None:
            check_arrays(self.shapes, {})  # raises: it has no model to act on
            raise AssertionError("a network has arrays")
        return self._encode(obs)

    def output(self, x: NDArray[np.float32], *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output of the layers."""
        output: NDArray[np.float32] = self._layers.forward(np, self._net, x, *inputs)
        return output


class NumpyNetwork(_NumpyParts):
    """An `ActingNetwork` in numpy; see `_NumpyParts`."""

    def __call__(
        self, obs: Mapping[str, NDArray[Any]], *inputs: NDArray[Any]
    ) -> NDArray[np.float32]:
        """The output for columns ``obs...``."""
        return self.output(self.features(obs), *inputs)


class RecurrentNumpyNetwork(_NumpyParts):
    """A `RecurrentActingNetwork` in numpy; see `_NumpyParts`.

    Args:
        config: its `core_size` is H.
    """

    def __init__(
        self, config: NetworkConfig, seen: BuiltInInput, layers: LayersFactory, size: int
    ) -> None:
        super().__init__(config, seen, layers, size)
        self.memory_size = config.core_size
        self.shapes |= GruSizes(count_features(seen), config.core_size).shapes

    def sync_model(self, model: ModelInfo) -> None:
        """Use these weights; see `SyncedNetwork`."""
        super().sync_model(model)
        self._core = NumpyGru(model.arrays)

    def remember(
        self, obs: Mapping[str, NDArray[Any]], memory: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The memory after these observations; see `RecurrentActingNetwork`."""
        features = self.features(obs)
        return self._core(features, memory)


class NumpyMlp:
    """The layers under `name` in a model's arrays; of weights it keeps copies, of biases views.

    Args:
        arrays: the arrays of a model that was checked.
        name: the perceptron's.
        sizes: the sizes of its layers.
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

    def tanh(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `PerceptronSteps`."""
        return np.tanh(x, out=x)


class _Normalized:
    """A network that acts, behind a model's running statistics of the observation.

    Args:
        network: acts on normalised columns.
        columns: the columns that are normalised.

    Attributes:
        shapes: of the model's arrays.
    """

    def __init__(self, network: SyncedNetwork, columns: NormalizedColumns) -> None:
        self._synced = network
        self._columns = columns
        self.shapes: Shapes = {**network.shapes, **columns.shapes}
        self._mean: dict[str, NDArray[np.float32]] = {}
        self._scale: dict[str, NDArray[np.float32]] = {}

    def sync_model(self, model: ModelInfo) -> None:
        """Use these weights and statistics; see `SyncedNetwork`."""
        shapes = self._columns.shapes
        statistics = {name: array for name, array in model.arrays.items() if name in shapes}
        check_arrays(shapes, statistics)
        rest = {name: array for name, array in model.arrays.items() if name not in shapes}
        self._synced.sync_model(replace(model, arrays=rest))
        self._mean, self._scale = (self._columns.split(statistics[name]) for name in (MEAN, SCALE))

    def normalize(self, obs: Columns) -> Columns:
        """The columns ``obs...`` as the network takes them."""
        return normalize_columns(obs, self._mean, self._scale)


class NormalizedNetwork(_Normalized):
    """An `ActingNetwork` behind statistics; see `_Normalized`."""

    def __init__(self, network: ActingNetwork, columns: NormalizedColumns) -> None:
        super().__init__(network, columns)
        self._network = network

    def __call__(self, obs: Columns, *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output for columns ``obs...``."""
        return self._network(self.normalize(obs), *inputs)


class RecurrentNormalizedNetwork(_Normalized):
    """A `RecurrentActingNetwork` behind statistics; see `_Normalized`."""

    def __init__(self, network: RecurrentActingNetwork, columns: NormalizedColumns) -> None:
        super().__init__(network, columns)
        self._network = network
        self.memory_size = network.memory_size

    def remember(self, obs: Columns, memory: NDArray[np.float32]) -> NDArray[np.float32]:
        """The memory after these observations; see `RecurrentActingNetwork`."""
        return self._network.remember(self.normalize(obs), memory)

    def output(self, memory: NDArray[np.float32], *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output for a memory; see `RecurrentActingNetwork`."""
        return self._network.output(memory, *inputs)


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


def numpy_encoder(seen: BuiltInInput, arrays: Mapping[str, NDArray[Any]]) -> Encode:
    """The encoder in numpy, with the weights ``encoder...`` of a model that was checked."""
    match seen:
        case Image():
            return NumpyConvolutions("encoder", seen, arrays)
        case Parts():
            return NumpyPartsEncoder(seen, arrays)
        case _:
            return lambda obs: flatten_observation(seen, obs)


class NumpyConvolutions:
    """An image's convolutions, with the weights ``PREFIX.conv1...`` of a model."""

    def __init__(self, prefix: str, image: Image, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._image = image
        self._layers = [
            (arrays[f"{prefix}.conv{k}.weight"], arrays[f"{prefix}.conv{k}.bias"], stride)
            for k, (_, _, stride) in enumerate(image.convolutions, start=1)
        ]

    def __call__(self, obs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """``(B, count_features)`` of a uint8 image."""
        image = self._image
        x = obs[image.column]
        if image.layout == "channels_last":
            x = np.moveaxis(x, -1, -3)
        x = x.reshape(len(x), image.channels, image.height, image.width)
        x_BCHW = x.astype(np.float32) * np.float32(image.scale)
        for weight, bias, stride in self._layers:
            x_BCHW = _convolve(x_BCHW, weight, bias, stride)
        return x_BCHW.reshape(len(x_BCHW), -1)


def _convolve(
    x_BCHW: NDArray[np.float32],
    weight_OCKK: NDArray[np.float32],
    bias_O: NDArray[np.float32],
    stride: int,
) -> NDArray[np.float32]:
    """A convolution and its ReLU, as one product of matrices."""
    out, _, kernel, _ = weight_OCKK.shape
    windows = sliding_window_view(x_BCHW, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    rows, _, height, width = windows.shape[:4]
    patches = windows.transpose(0, 2, 3, 1, 4, 5).reshape(rows * height * width, -1)
    y = patches @ weight_OCKK.reshape(out, -1).T
    y += bias_O
    np.maximum(y, 0.0, out=y)
    return np.ascontiguousarray(y.reshape(rows, height, width, out).transpose(0, 3, 1, 2))


class NumpyPartsEncoder:
    """Features of images and a vector, as `Parts` describes them."""

    def __init__(self, seen: Parts, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._seen = seen
        self._arrays = arrays
        self._convolutions = [
            NumpyConvolutions(f"encoder.image{0 if seen.shared else k}.convolutions", image, arrays)
            for k, image in enumerate(seen.images)
        ]

    def __call__(self, obs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """``(B, count_features)``."""
        features = [
            self._features(f"image{0 if self._seen.shared else k}", convolutions(obs))
            for k, convolutions in enumerate(self._convolutions)
        ]
        if self._seen.vector:
            features.append(self._features("vector", flatten_observation(self._seen.vector, obs)))
        return np.concatenate(features, axis=1)

    def _features(self, name: str, x_BF: NDArray[np.float32]) -> NDArray[np.float32]:
        weight, bias, scale, shift = (
            self._arrays[f"encoder.{name}.{array}"]
            for array in ("linear.weight", "linear.bias", "norm.weight", "norm.bias")
        )
        y: NDArray[np.float32] = x_BF @ weight.T + bias
        y -= y.mean(axis=1, keepdims=True)
        y /= np.sqrt(np.square(y).mean(axis=1, keepdims=True) + np.float32(NORM_EPS))
        y *= scale
        y += shift
        return np.tanh(y, out=y)


def flatten_observation(
    parts: tuple[FlatPart, ...], obs: Mapping[str, NDArray[Any]]
) -> NDArray[np.float32]:
    """The observation as ``(B, F)`` float32; a view where it is one float32 column already."""
    flat = [_flatten_part(part, obs[part.column]) for part in parts]
    return flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)


def _flatten_part(part: FlatPart, column: NDArray[Any]) -> NDArray[np.float32]:
    rows = column.reshape(len(column), -1)
    if part.classes:
        hot = np.zeros((len(rows), part.width), np.float32)
        first = 0
        for k, (n, start) in enumerate(zip(part.classes, part.starts, strict=True)):
            hot[np.arange(len(rows)), first + rows[:, k].astype(np.int64) - start] = 1.0
            first += n
        return hot
    numbers: NDArray[np.float32] = rows.astype(np.float32, copy=False)
    return numbers if part.scale == 1.0 else numbers * np.float32(part.scale)
