"""The discounts of transitions of several steps. Shapes: B samples."""

from __future__ import annotations

import torch

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
