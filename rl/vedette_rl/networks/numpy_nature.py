"""The convolutions of Mnih et al. 2015 in numpy: `vedette_rl.networks.encoder` without torch.

Slower than torch's, and enough to play. Shapes: B rows, C channels, H height, W width, K a
kernel's side, O channels out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from vedette_rl.networks.observation import Image

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
