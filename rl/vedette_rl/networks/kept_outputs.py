"""Keeps a network's output while the statistics that normalise its input move.

Shapes: F features of the first layer's input, H units of it.
"""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import nn

from vedette_rl.networks.core import CORE
from vedette_rl.networks.layers import NormalizedColumns
from vedette_rl.networks.observation import CustomInput, FlatPart, Image, NetworkInput, Parts


class KeptOutputs:
    """Changes the first linear layers of a network, so that new statistics change nothing else.

    With statistics (m, s) that become (m', s'), a layer W x + b of x = (obs - m) s is the same as
    one of x' with W' = W s / s' and b' = b + W (m' - m) s: what PopArt does for a network's output
    (van Hasselt et al. 2016, arXiv:1602.07714, proposition 1), done for its input. A number that is
    clipped far from the mean is not kept, and a custom encoder stays as it is.

    ::

        kept = KeptOutputs(network, seen, columns, ["policy", "value"])
        kept.follow(mean, scale, new_mean, new_scale)

    Args:
        network: from columns to an output.
        seen: its input.
        columns: those that are normalised.
        perceptrons: names of those that are first behind an encoder of vectors without memory.
    """

    def __init__(
        self,
        network: nn.Module,
        seen: NetworkInput,
        columns: NormalizedColumns,
        perceptrons: list[str],
    ) -> None:
        self._layers: list[tuple[nn.Parameter, nn.Parameter]] = []
        self._features: list[slice] = []  # of each column
        if isinstance(seen, (CustomInput, Image)):
            return
        parts = seen.vector if isinstance(seen, Parts) else seen
        self._features = _features_of(parts, columns)
        if not self._features:
            return
        if isinstance(seen, Parts):
            names = [("encoder.vector.linear.weight", "encoder.vector.linear.bias")]
        elif hasattr(network, CORE):
            names = [(f"{CORE}.weight_ih_l0", f"{CORE}.bias_ih_l0")]
        else:
            names = [(f"{name}.0.weight", f"{name}.0.bias") for name in perceptrons]
        self._layers = [
            (network.get_parameter(weight), network.get_parameter(bias)) for weight, bias in names
        ]

    @torch.no_grad()
    def follow(
        self,
        mean: torch.Tensor,
        scale: torch.Tensor,
        new_mean: torch.Tensor,
        new_scale: torch.Tensor,
    ) -> None:
        """Change the layers for new statistics.

        Args:
            mean, scale, new_mean, new_scale: of all normalised numbers, as `NormalizedColumns` has
                them side by side.
        """
        first = 0
        for features in self._features:
            numbers = slice(first, first + features.stop - features.start)
            first = numbers.stop
            moved = (new_mean[numbers] - mean[numbers]) * scale[numbers]
            factor = scale[numbers] / new_scale[numbers]
            for weight_HF, bias_H in self._layers:
                part_HF = weight_HF[:, features]
                bias_H.add_(part_HF @ moved)
                part_HF.mul_(factor)


def _features_of(parts: tuple[FlatPart, ...], columns: NormalizedColumns) -> list[slice]:
    """The places of the normalised columns among the features, in the order of the statistics."""
    ends = list(accumulate(part.width for part in parts))
    places = {
        part.column: slice(end - part.width, end) for part, end in zip(parts, ends, strict=True)
    }
    return [places[name] for name, _ in columns.columns]
