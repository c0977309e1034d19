"""Discounts, and losses of TD errors, for temporal-difference agents.

Shapes: B samples.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional

_LONGEST_TRANSITION = 255
"""Steps: ``n_steps`` is one byte."""


class Discounts:
    """discount_t of transitions: gamma to the power of the steps they span, 0 where they end.

    A truncated episode has not ended: the value beyond still counts (Pardo et al. 2018).
    """

    def __init__(self, discount: float, device: str) -> None:
        powers = [discount**n for n in range(_LONGEST_TRANSITION + 1)]
        self._powers = torch.tensor(powers, dtype=torch.float32, device=device)

    def __call__(self, n_steps: torch.Tensor, terminated: torch.Tensor) -> torch.Tensor:
        """``(B,)`` float32."""
        return self._powers.index_select(0, n_steps.int()).masked_fill_(terminated, 0.0)


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
