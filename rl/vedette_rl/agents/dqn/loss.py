"""The target of Q-learning. Shapes: B samples, A actions."""

from __future__ import annotations

import torch


def q_learning_target(
    r_t: torch.Tensor, discount_t: torch.Tensor, q_t_BA: torch.Tensor
) -> torch.Tensor:
    """r + discount max_a Q'(s', a): ``(B,)``. (Mnih et al. 2015, algorithm 1)"""
    return torch.addcmul(r_t, discount_t, q_t_BA.amax(dim=1))


def double_q_learning_target(
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    q_t_BA: torch.Tensor,
    q_t_selector_BA: torch.Tensor,
) -> torch.Tensor:
    """r + discount Q'(s', argmax_a Q(s', a)): ``(B,)``. (van Hasselt et al. 2016, equation 4)"""
    a_t = q_t_selector_BA.argmax(dim=1, keepdim=True)
    return torch.addcmul(r_t, discount_t, q_t_BA.gather(1, a_t).squeeze(1))
