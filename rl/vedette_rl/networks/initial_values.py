"""Initial values of perceptrons other than torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from vedette_rl.networks.torch_network import EnsembleMlp, Mlp

N = TypeVar("N", bound=nn.Module)

_TRUNCATED = 0.87962566103423978
"""The standard deviation of a normal one that is cut at two of its own."""


def build_lecun_normal(build: Callable[[], N]) -> N:
    """A network whose perceptrons begin as flax has them: see `draw_lecun_normal`."""
    network = build()
    draw_lecun_normal(network)
    return network


@torch.no_grad()
def draw_lecun_normal(network: nn.Module) -> None:
    """Draw the weights of a network's perceptrons anew, with a variance of 1 / inputs, and set
    their biases to 0 (LeCun et al. 1998, section 4.6).

    They are normal, cut at two standard deviations. Torch's own are uniform with a third of that
    variance, biases, too. Encoders stay as they are.
    """
    for part in network.modules():
        if isinstance(part, EnsembleMlp):
            pairs = [*zip(part.weights, part.biases, strict=True)]  # (K, before, after)
        elif isinstance(part, Mlp):
            layers = [layer for layer in part.modules() if isinstance(layer, nn.Linear)]
            pairs = [(layer.weight, layer.bias) for layer in layers]  # (after, before)
        else:
            continue
        for weight, bias in pairs:
            deviation = weight.shape[1] ** -0.5 / _TRUNCATED
            nn.init.trunc_normal_(weight, std=deviation, a=-2.0 * deviation, b=2.0 * deviation)
            bias.zero_()
