"""A multilayer perceptron in numpy: what an actor needs of `vedette_rl.networks.mlp`. No torch.

On one row of environments a forward pass costs some ten microseconds, and the process neither
loads torch (half a second, 200 MB) nor fights over its threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from vedette_rl.errors import ModelMismatchError
from vedette_rl.networks.observation import Image


def mlp_shapes(name: str, sizes: Sequence[int]) -> Shapes:
    """The arrays of an `Mlp` of these sizes under this name: torch's names, torch's shapes."""
    shapes: Shapes = {}
    for k, (before, after) in enumerate(pairwise(sizes)):
        shapes[f"{name}.{k}.weight"] = (after, before)
        shapes[f"{name}.{k}.bias"] = (after,)
    return shapes


class NumpyMlp:
    """The layers under `name` in a model's arrays; of weights it keeps copies, of biases views.

    Args:
        arrays: of a model that was checked.
        name: the network's.
        relu_last: whether the last layer's output goes through a ReLU too.
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

    def __call__(self, x_BF: NDArray[np.float32]) -> NDArray[np.float32]:
        """The last layer's output ``(B, size)``."""
        for k, (weight, bias) in enumerate(self._layers):
            x_BF = x_BF.dot(weight)
            x_BF += bias
            if k < self._relu_layers:
                np.maximum(x_BF, 0.0, out=x_BF)
        return x_BF


Shapes = dict[str, tuple[int, ...]]
"""Names and shapes of a model's arrays, all float32."""


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


# Slower than torch's, and enough to play. Shapes: B rows, C channels, H height, W width, K a
# kernel's side, O channels out.

_STRIDES = (4, 2, 1)


class NumpyNatureEncoder:
    """Features of an image, with the weights ``encoder.conv1...`` of a model.

    Args:
        image: how the column is laid out.
        arrays: of a model that was checked.
    """

    def __init__(self, image: Image, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._image = image
        self._layers = [
            (arrays[f"encoder.conv{k}.weight"], arrays[f"encoder.conv{k}.bias"]) for k in (1, 2, 3)
        ]

    def __call__(self, obs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """``(B, features)`` of a uint8 image."""
        image = self._image
        x = obs[image.column]
        if image.layout == "channels_last":
            x = np.moveaxis(x, -1, -3)
        x = x.reshape(len(x), image.channels, image.height, image.width)
        x_BCHW = x.astype(np.float32) * np.float32(1 / 255)
        for (weight, bias), stride in zip(self._layers, _STRIDES, strict=True):
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
