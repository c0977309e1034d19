"""SAC's equations (arXiv:1812.05905). Shapes: B samples, D action dimensions, K critics."""

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
    # log N(u) - log(1 - tanh(u)^2). The latter is 2 (log 2 - u - softplus(-2 u)), which is still
    # exact where tanh(u) rounds to 1; what is constant in both is added after the sum.
    softplus_BD = functional.softplus(-2.0 * u_BD)
    log_pi = (2.0 * (u_BD + softplus_BD) - 0.5 * noise_BD.square() - log_std_BD).sum(dim=1)
    constant = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)
    return u_BD.tanh(), log_pi - mean_BD.shape[1] * constant


def soft_target(
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    q_t_BM: torch.Tensor,
    log_pi_t: torch.Tensor,
    alpha: torch.Tensor,
) -> torch.Tensor:
    """r + discount (Q'(s', a') - alpha log pi(a' | s')): ``(B, M)``. (equations 2 and 3)"""
    soft_t_BM = q_t_BM - (alpha * log_pi_t).unsqueeze(1)
    return torch.addcmul(r_t.unsqueeze(1), discount_t.unsqueeze(1), soft_t_BM)


def policy_loss(q_tm1: torch.Tensor, log_pi_tm1: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """The mean of alpha log pi(a | s) - Q(s, a), a by the policy. (equation 7)"""
    return (alpha * log_pi_tm1 - q_tm1).mean()


def temperature_loss(
    log_alpha: torch.Tensor, log_pi_tm1: torch.Tensor, target_entropy: float
) -> torch.Tensor:
    """Grows alpha while the entropy is below its target. (equation 18)

    On log alpha in alpha's place, as the authors' code has it: the sign is the same, and steps do
    not shrink with alpha.
    """
    return -log_alpha * (log_pi_tm1.detach() + target_entropy).mean()
