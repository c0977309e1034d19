"""Batch normalization folded into the linear layers behind it, for a network that only acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.networks.torch_network import BATCH_NORM_EPS


def fold_batch_norm(arrays: Mapping[str, NDArray[Any]], mlp: str) -> dict[str, NDArray[np.float32]]:
    """A model's arrays with a plain perceptron in the place of a normalised one.

    A layer of ``W (gain (x - mean) / deviation + offset) + b``, by the running statistics, becomes
    ``W' x + b'``.

    Args:
        arrays: by name, those of an `EnsembleMlp` of one member with batch normalization among
            them.
        mlp: its name; the arrays under it get the names of an `Mlp`.
    """
    folded = {name: array for name, array in arrays.items() if not name.startswith(f"{mlp}.")}
    k = 0
    while f"{mlp}.weights.{k}" in arrays:
        of_layer = ("weights", "biases", "gains", "offsets")
        weight, (bias,), gain, offset = (arrays[f"{mlp}.{name}.{k}"][0] for name in of_layer)
        mean, variance = arrays[f"{mlp}.statistics.{k}"][:, 0]
        scale = gain / np.sqrt(variance + BATCH_NORM_EPS)
        folded[f"{mlp}.{k}.weight"] = np.ascontiguousarray((scale[:, None] * weight).T)
        folded[f"{mlp}.{k}.bias"] = bias + (offset - mean * scale) @ weight
        k += 1
    return folded
