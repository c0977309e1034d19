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


# Shapes: K members, B rows.


class EnsembleMlp(nn.Module):
    """K perceptrons of one output each, on the same input.

    Args:
        members: K.
        sizes: features in, and of each hidden layer.
    """

    def __init__(self, members: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.weights = nn.ParameterList()  # (K, before, after)
        self.biases = nn.ParameterList()  # (K, 1, after)
        for before, after in pairwise((*sizes, 1)):
            # the same distribution as torch.nn.Linear's
            bound = before**-0.5
            self.weights.append(torch.empty(members, before, after).uniform_(-bound, bound))
            self.biases.append(torch.empty(members, 1, after).uniform_(-bound, bound))
        self._members = members

    def forward(self, x_BF: torch.Tensor) -> torch.Tensor:
        """``(K, B)``."""
        x_KBF = x_BF.expand(self._members, *x_BF.shape)
        last = len(self.weights) - 1
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x_KBF = torch.baddbmm(bias, x_KBF, weight)
            if k < last:
                x_KBF = functional.relu(x_KBF, inplace=True)
        return x_KBF.squeeze(2)
