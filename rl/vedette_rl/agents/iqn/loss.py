"""The quantile Huber loss (section 2.3 and equation 3).

Shapes: B samples, N quantile fractions of the prediction, M (the paper's N') of the target.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def quantile_huber_loss(
    z_tm1_BN: torch.Tensor, taus_BN: torch.Tensor, target_BM: torch.Tensor, kappa: float
) -> torch.Tensor:
    """Each sample's loss ``(B,)``: the sum over N of the mean over M of rho_tau(delta)."""
    delta_BNM = target_BM.unsqueeze(1) - z_tm1_BN.unsqueeze(2)
    huber_BNM = functional.huber_loss(
        delta_BNM, torch.zeros_like(delta_BNM), reduction="none", delta=kappa
    )
    is_below_BNM = (delta_BNM.detach() < 0).float()
    weight_BNM = (taus_BN.unsqueeze(2) - is_below_BNM).abs() / kappa
    return (weight_BNM * huber_BNM).mean(dim=2).sum(dim=1)
