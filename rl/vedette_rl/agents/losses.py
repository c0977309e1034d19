"""Losses of TD errors that several agents share.

Shapes: B samples, N quantile fractions of the prediction, M of the target.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional


def td_loss(
    prediction: torch.Tensor,
    target: torch.Tensor,
    kind: Literal["huber", "mse"],
    weights: torch.Tensor | None,
) -> torch.Tensor:
    """The mean over ``(B,)`` of each sample's loss times its weight.

    The weight multiplies the loss and so the gradient, once (Schaul et al. 2016, algorithm 1).
    """
    loss = functional.huber_loss if kind == "huber" else functional.mse_loss
    if weights is None:
        return loss(prediction, target)
    return (weights * loss(prediction, target, reduction="none")).mean()


def quantile_huber_loss(
    z_tm1_BN: torch.Tensor, taus_BN: torch.Tensor, target_BM: torch.Tensor, kappa: float
) -> torch.Tensor:
    """Each sample's loss ``(B,)``: the sum over N of the mean over M of rho_tau(delta).

    (Dabney et al. 2017, equations 9 and 10; Dabney et al. 2018, section 2.3 and equation 3.)
    """
    delta_BNM = target_BM.unsqueeze(1) - z_tm1_BN.unsqueeze(2)
    huber_BNM = functional.huber_loss(
        delta_BNM, torch.zeros_like(delta_BNM), reduction="none", delta=kappa
    )
    is_below_BNM = (delta_BNM.detach() < 0).float()
    weight_BNM = (taus_BN.unsqueeze(2) - is_below_BNM).abs() / kappa
    return (weight_BNM * huber_BNM).mean(dim=2).sum(dim=1)
