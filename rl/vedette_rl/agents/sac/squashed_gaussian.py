"""Actions tanh(u) of a Gaussian u, and their log densities (arXiv:1812.05905, appendix C).

Shapes: B samples, D action dimensions.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional


def squashed_sample(
    mean_BD: torch.Tensor, log_std_BD: torch.Tensor, noise_BD: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """An action tanh(u), u = mean + std noise, and log pi of it (appendix C, equation 26).

    Returns:
        Actions ``(B, D)`` in [-1, 1] and their log densities ``(B,)``; gradients flow through both
        to the mean and the standard deviation.
    """
    u_BD = mean_BD + log_std_BD.exp() * noise_BD
    # Before tanh: autograd adds up the gradients of u in this order, and a seed keeps its bits.
    log_pi = _log_density(u_BD, log_std_BD, noise_BD)
    return u_BD.tanh(), log_pi


def _log_density(
    u_BD: torch.Tensor, log_std_BD: torch.Tensor, noise_BD: torch.Tensor
) -> torch.Tensor:
    """log N(u) - log(1 - tanh(u)^2) ``(B,)`` (equation 26)."""
    # The latter is 2 (log 2 - u - softplus(-2 u)), which is still exact where tanh(u) rounds to 1;
    # what is constant in both is added after the sum.
    softplus_BD = functional.softplus(-2.0 * u_BD)
    log_pi = (2.0 * (u_BD + softplus_BD) - 0.5 * noise_BD.square() - log_std_BD).sum(dim=1)
    constant = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)
    return log_pi - u_BD.shape[1] * constant


_INSIDE = 1.0 - 1e-4
"""Demonstrated actions are taken for at most this: at a bound no density of tanh is finite."""


def log_pi_of(a_BD: torch.Tensor, mean_BD: torch.Tensor, log_std_BD: torch.Tensor) -> torch.Tensor:
    """log pi(a | s) of actions ``(B, D)`` in [-1, 1] that were not drawn from pi: ``(B,)``."""
    u_BD = a_BD.clamp(-_INSIDE, _INSIDE).atanh()
    return _log_density(u_BD, log_std_BD, (u_BD - mean_BD) * (-log_std_BD).exp())
