"""A multilayer perceptron in numpy: what an actor needs of `vedette_rl.networks.mlp`. No torch.

On one row of environments a forward pass costs some ten microseconds, and the process neither
loads torch (half a second, 200 MB) nor fights over its threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.networks.model_arrays import Shapes


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
