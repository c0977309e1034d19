"""The losses of APPO.

Shapes: K runs, T steps of a run, B rows of a minibatch. "mu" is the policy that acted, "beta" the
learner's policy when the block was taken, "pi" the one that learns. Equations of V-trace are those
of Espeholt et al. 2018 (arXiv:1802.01561).
"""

from __future__ import annotations

from typing import NamedTuple

import torch

LOG_RATIO_MAX = 20.0
"""A logarithm of a ratio of probabilities counts as this at most: what a peer says that its policy
was may be anything."""


class Returns(NamedTuple):
    """What the values and the policy of a block learn from; no gradient.

    Args:
        targets: of the values ``(K, T)``.
        advantages: of the actions ``(K, T)``.
    """

    targets: torch.Tensor
    advantages: torch.Tensor


def ratio(log_pi: torch.Tensor, log_mu: torch.Tensor) -> torch.Tensor:
    """pi / mu of log-probabilities, within exp(+-20)."""
    return (log_pi - log_mu).clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX).exp()


def vtrace(
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    v_tm1: torch.Tensor,
    v_t: torch.Tensor,
    joined_t: torch.Tensor,
    rho_t: torch.Tensor,
    c_t: torch.Tensor,
    lambda_: float,
) -> Returns:
    """V-trace (equation 1, by the recursion of remark 1; lambda: remark 2) and the advantage of
    section 4.2.

    With ``rho_t = c_t = 1`` it is GAE(lambda) (Schulman et al. 2016, arXiv:1506.02438, equation
    16). The successor's value is that of a row's own successor, also where its episode was
    truncated: nothing of the episode behind it comes in.

    Args:
        r_t: rewards ``(K, T)``.
        discount_t: 0 where terminated, else gamma.
        v_tm1: the values of the observations.
        v_t: the values of their successors.
        joined_t: 1 where the next row of the run goes on with the same episode, else 0.
        rho_t: ratios pi / mu, cut off at rho_max: they decide which policy the values are of.
        c_t: the same, cut off at c_max: how far what follows counts.
        lambda_: 1 is equation 1.
    """
    delta_t = rho_t * (r_t + discount_t * v_t - v_tm1)
    decay_t = discount_t * joined_t * (lambda_ * c_t)
    behind = torch.zeros_like(r_t[:, 0])
    corrections = []
    for t in reversed(range(r_t.shape[1])):
        behind = delta_t[:, t] + decay_t[:, t] * behind
        corrections.append(behind)
    a_t = torch.stack(corrections[::-1], dim=1)
    a_next = torch.cat([a_t[:, 1:], torch.zeros_like(a_t[:, :1])], dim=1)
    successor_t = v_t + joined_t * (lambda_ * a_next)
    return Returns(v_tm1 + a_t, r_t + discount_t * successor_t - v_tm1)


def clipped_loss(
    r_B: torch.Tensor, advantage_B: torch.Tensor, clip: torch.Tensor, w_B: torch.Tensor
) -> torch.Tensor:
    """The policy's loss ``(B,)``: PPO's (Schulman et al. 2017, arXiv:1707.06347, equation 7) around
    beta, weighed by beta / mu (Hilton et al. 2022, arXiv:2110.00641).

    Args:
        r_B: pi / beta, with a gradient.
        advantage_B: of the actions.
        clip: epsilon, a single number.
        w_B: beta / mu, cut off at rho_max; 1 where mu is beta.
    """
    clipped_B = r_B.clamp(1.0 - clip, 1.0 + clip)
    return -w_B * torch.minimum(r_B * advantage_B, clipped_B * advantage_B)


def masked_mean(x_B: torch.Tensor, mask_B: torch.Tensor) -> torch.Tensor:
    """The mean over the rows whose mask is 1; 0 where there is none."""
    return (x_B * mask_B).sum() / mask_B.sum().clamp(min=1.0)


def normalized(x_B: torch.Tensor, mask_B: torch.Tensor) -> torch.Tensor:
    """With mean 0 and deviation 1 over the rows whose mask is 1 (as Stable-Baselines3's PPO); a
    single row stays as it is."""
    mean = masked_mean(x_B, mask_B)
    count = mask_B.sum()
    variance = ((x_B - mean).square() * mask_B).sum() / (count - 1.0).clamp(min=1.0)
    return torch.where(count > 1.0, (x_B - mean) / (variance.sqrt() + 1e-8), x_B)
