"""The target of Q-learning. Shapes: B samples."""

from __future__ import annotations

import torch


def q_learning_target(
    r_t: torch.Tensor, discount_t: torch.Tensor, v_t: torch.Tensor
) -> torch.Tensor:
    """r + discount v': ``(B,)``, v' by the target network (Mnih et al. 2015, algorithm 1).

    Args:
        v_t: max_a Q'(s', a); with double Q-learning Q'(s', argmax_a Q(s', a)), the action chosen by
            the online network (van Hasselt et al. 2016, equation 4).
    """
    return torch.addcmul(r_t, discount_t, v_t)
