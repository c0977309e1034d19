"""The values of finitely many actions, in one dimension or several, in torch.

Shapes: B samples, A values of actions of all heads, D heads, C actions of the largest.
"""

from __future__ import annotations

import torch

from vedette_rl.agents.actions import DiscreteActions


class ActionHeads:
    """Reads actions' values off a network's output ``(..., A)``, in one dimension or several.

    Args:
        actions: the heads.
        device: the device of the values.
    """

    def __init__(self, actions: DiscreteActions, device: str) -> None:
        self._one = actions.heads == 1
        counts = torch.tensor(actions.counts)
        most = max(actions.counts)
        offsets = torch.from_numpy(actions.offsets)
        choice_DC = torch.arange(most).expand(actions.heads, most)
        column_DC = torch.minimum(choice_DC, counts.unsqueeze(1) - 1) + offsets.unsqueeze(1)
        self._shape = (actions.heads, most)
        self._columns = column_DC.flatten().to(device)
        self._outside = (choice_DC >= counts.unsqueeze(1)).to(device)
        self._offsets = offsets.to(device)
        self._from_start = (offsets - torch.tensor(actions.starts)).to(device)

    def columns(self, action: torch.Tensor) -> torch.Tensor:
        """The columns ``(B, D)`` of actions ``(B, *shape)`` as the environment calls them."""
        return action.reshape(len(action), -1) + self._from_start

    def best(self, q_BA: torch.Tensor) -> torch.Tensor:
        """The columns ``(B, D)`` of the best actions."""
        if self._one:
            return q_BA.argmax(dim=1, keepdim=True)
        return self.by_head(q_BA).argmax(dim=2) + self._offsets

    def by_head(self, q_BA: torch.Tensor, beyond: float = -torch.inf) -> torch.Tensor:
        """The values ``(B, ..., D, C)`` of each head, of values ``(B, ..., A)``; `beyond` fills
        the places beyond the actions of smaller heads."""
        if self._one:
            return q_BA.unsqueeze(-2)
        q_BDC = q_BA.index_select(-1, self._columns).view(*q_BA.shape[:-1], *self._shape)
        return q_BDC.masked_fill(self._outside, beyond)

    def choices(self, action: torch.Tensor) -> torch.Tensor:
        """The places ``(B, D)`` in their heads of actions as the environment calls them."""
        return self.columns(action) - self._offsets

    def of(self, q_BA: torch.Tensor, column_BD: torch.Tensor) -> torch.Tensor:
        """The values ``(B, ...)`` of actions at these columns, of values ``(B, ..., A)``."""
        dims = q_BA.dim() - 2
        column = column_BD.view(len(column_BD), *[1] * dims, -1)
        of_heads = q_BA.gather(-1, column.expand(*q_BA.shape[:-1], -1) if dims else column)
        return of_heads.squeeze(-1) if self._one else of_heads.mean(dim=-1)
