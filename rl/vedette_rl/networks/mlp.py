"""Multilayer perceptrons in torch: one, and several of the same sizes computed together.

Shapes: K members, B rows, F features.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from vedette_rl.networks.layers import NORM_EPS, MlpSizes


class _TorchSteps:
    """The steps that one perceptron and several have in common; see `PerceptronSteps`."""

    def normalize(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, x.shape[-1:], eps=NORM_EPS)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x, inplace=True)


class Mlp(_TorchSteps, nn.ModuleList):
    """One perceptron: a list of its linear layers."""

    def __init__(self, sizes: MlpSizes) -> None:
        super().__init__(nn.Linear(before, after) for before, after in sizes.linear)
        self._sizes = sizes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(..., sizes[0])`` to ``(..., sizes[-1])``."""
        output: torch.Tensor = self._sizes.forward(self, x)
        return output

    def linear(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """See `PerceptronSteps`."""
        output: torch.Tensor = self[k](x)
        return output


class EnsembleMlp(_TorchSteps, nn.Module):
    """K perceptrons on the same input.

    Args:
        members: K.
        sizes: of each.
    """

    def __init__(self, members: int, sizes: MlpSizes) -> None:
        super().__init__()
        self.weights = nn.ParameterList()  # (K, before, after)
        self.biases = nn.ParameterList()  # (K, 1, after)
        for before, after in sizes.linear:
            # the same distribution as torch.nn.Linear's
            bound = before**-0.5
            self.weights.append(torch.empty(members, before, after).uniform_(-bound, bound))
            self.biases.append(torch.empty(members, 1, after).uniform_(-bound, bound))
        self._members, self._sizes = members, sizes

    def forward(self, x_BF: torch.Tensor) -> torch.Tensor:
        """``(K, B, sizes[-1])``."""
        x_KBF = x_BF.expand(self._members, *x_BF.shape)
        output: torch.Tensor = self._sizes.forward(self, x_KBF)
        return output

    def linear(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """See `PerceptronSteps`."""
        return torch.baddbmm(self.biases[k], x, self.weights[k])
