"""The target of Q-learning, and losses of imitation on action values.

Shapes: B samples, D heads, C actions of the largest head.
"""

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


def margin_loss(q_BDC: torch.Tensor, choice_BD: torch.Tensor, margin: float) -> torch.Tensor:
    """max_a [Q(s, a) + l(a_E, a)] - Q(s, a_E): ``(B,)``, the mean over heads. l is `margin`, and 0
    where a is the demonstrated action a_E (Hester et al. 2018, equation J_E)."""
    at = choice_BD.unsqueeze(2)
    others_BDC = torch.full_like(q_BDC, margin).scatter(2, at, 0.0)
    return ((q_BDC + others_BDC).amax(dim=2) - q_BDC.gather(2, at).squeeze(2)).mean(dim=1)


def cross_entropy(q_BDC: torch.Tensor, choice_BD: torch.Tensor) -> torch.Tensor:
    """-log of exp(Q(s, a_E)) / sum_a exp(Q(s, a)): ``(B,)``, the mean over heads."""
    log_pi_BDC = q_BDC.log_softmax(dim=2)
    return -log_pi_BDC.gather(2, choice_BD.unsqueeze(2)).squeeze(2).mean(dim=1)
