"""A multilayer perceptron in torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional


class Mlp(nn.ModuleList):
    """Linear layers with a ReLU between each two.

    Args:
        sizes: features in, of each layer, out. With one size it is the identity.
        relu_last: whether the last layer's output goes through a ReLU too.
    """

    def __init__(self, sizes: Sequence[int], *, relu_last: bool = False) -> None:
        super().__init__(nn.Linear(before, after) for before, after in pairwise(sizes))
        self._relu_layers = len(sizes) - 1 - (not relu_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(..., sizes[0])`` to ``(..., sizes[-1])``."""
        for k, layer in enumerate(self):
            x = layer(x)
            if k < self._relu_layers:
                x = functional.relu(x, inplace=True)
        return x
