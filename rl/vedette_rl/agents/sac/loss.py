"""The losses of SAC. Equations are those of arXiv:1812.05905.

Shapes: B samples, M values of a target.
"""

from __future__ import annotations

import torch


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


def policy_loss(
    q_tm1: torch.Tensor,
    log_pi_tm1: torch.Tensor,
    alpha: torch.Tensor,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """The mean of alpha log pi(a | s) - Q(s, a), a by the policy, each times its weight.
    (equation 7)"""
    loss = alpha * log_pi_tm1 - q_tm1
    return (loss if weights is None else weights * loss).mean()


def temperature_loss(
    log_alpha: torch.Tensor,
    log_pi_tm1: torch.Tensor,
    target_entropy: float,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Grows alpha while the entropy is below its target. (equation 18)

    On log alpha in alpha's place, as the authors' code has it: the sign is the same, and steps do
    not shrink with alpha.
    """
    excess = log_pi_tm1.detach() + target_entropy
    return -log_alpha * (excess if weights is None else weights * excess).mean()
