"""Losses over windows, the rows that a drawn sequence is learned from.

A window crosses no episode. What lies behind its last row is padding, which must change nothing.

Shapes: B sequences, T rows of a window, L steps of a drawn sequence with its burn-in, R = B T.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from vedette_rl.agents.captured_step import Batch
from vedette_rl.core.columns import BURNED, LEARNED, LENGTH
from vedette_rl.networks.torch_network import window_rows


class Window(NamedTuple):
    """The rows that are learned from, at 0 .. T - 1 whatever the burn-in was.

    Args:
        action: ``(R, *shape)``.
        reward: ``(B, T)``; 0 behind the last row.
        terminated: ``(B, T)``; only ever the last row is.
        learned: ``(B, T)``, False on padding.
        lengths: ``(B,)`` int64: rows, 1 to T.
    """

    action: torch.Tensor
    reward: torch.Tensor
    terminated: torch.Tensor
    learned: torch.Tensor
    lengths: torch.Tensor

    @classmethod
    def of(cls, batch: Batch, steps: int) -> Window:
        """The windows of at most `steps` (T) rows of a batch of sequences."""
        lengths = batch[LENGTH]
        columns = {name: batch[name] for name in ("action", "reward", "terminated")}
        rows = window_rows(columns, batch[BURNED], steps)
        learned = torch.arange(steps, device=lengths.device) < lengths.unsqueeze(1)
        return cls(
            rows["action"],
            rows["reward"].view(-1, steps).masked_fill(~learned, 0.0),
            rows["terminated"].view(-1, steps) & learned,
            learned,
            lengths,
        )


class WindowLearner:
    """The part of a `SequenceAgent` that knows how its batches are laid out.

    Attributes:
        burn_in: N of the batches' sequences; None: not known, and each may have any.
    """

    burn_in: int | None = None

    def expect_burn_in(self, rows: int) -> None:
        """See `vedette_rl.core.SequenceAgent`."""
        self.burn_in = rows

    def spans(self, batch: Batch) -> tuple[int, int]:
        """N and T: the most rows of burn-in, and the most to learn from."""
        longest = batch[LEARNED].shape[1]
        if self.burn_in is None:
            return longest, longest
        return self.burn_in, longest - self.burn_in


class NStepTargets(NamedTuple):
    """The parts of a window's targets; each row has ``returns + discounts values``.

    Args:
        returns: ``(B, T)``, the sum of rewards.
        discounts: ``(B, T)``, ``discount**m`` of m rows; 0 where the episode ended.
        values: ``(B, T, ...)``, of the observation behind the last of the m rows.
    """

    returns: torch.Tensor
    discounts: torch.Tensor
    values: torch.Tensor

    def sums(self) -> torch.Tensor:
        """The targets ``(R, ...)`` of the rows."""
        returns, discounts, values = (part.flatten(0, 1) for part in self)
        dims = (-1, *[1] * (values.dim() - 1))
        return torch.addcmul(returns.view(dims), discounts.view(dims), values)


def n_step_targets(window: Window, v: torch.Tensor, n: int, discount: float) -> NStepTargets:
    """The return of up to n rows, and what it bootstraps from.

    A row has the sum of ``discount**k r`` over n rows, or over fewer at the window's end, and the
    value of the observation behind the last of them, unless the episode terminated there. One that
    was truncated, or goes on, has its true successor there (Pardo et al. 2018).

    Args:
        v: ``(B, T + 1, ...)``, values of the observations of the window's positions and of the one
            behind them; or several samples of each.
        n: rows at most, at least 1.
        discount: gamma.
    """
    steps = window.reward.shape[1]
    rewards = torch.nn.functional.pad(window.reward, (0, n - 1))
    returns = window.reward.clone()
    for k in range(1, min(n, steps)):
        returns.add_(rewards[:, k : k + steps], alpha=discount**k)
    place = torch.arange(steps, device=v.device)
    left = window.lengths.unsqueeze(1) - place  # rows from here to the window's end
    spans = left.clamp(1, n)
    ends = place + spans
    at = ends.view(*ends.shape, *[1] * (v.dim() - 2)).expand(-1, -1, *v.shape[2:])
    over = window.terminated.gather(1, ends - 1)
    discounts = torch.pow(discount, spans.to(v.dtype)).masked_fill(over, 0.0)
    return NStepTargets(returns, discounts, v.gather(1, at))


def row_weights(learned: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """Importance weights ``(R,)`` with which a mean over all rows is one over those learned from.

    Args:
        learned: ``(B, T)``.
        weights: of the sequences ``(B,)``; None: all 1.
    """
    each = learned.float()
    each = each / each.mean()
    return (each if weights is None else each * weights.unsqueeze(1)).flatten()


def sequence_errors(errors: torch.Tensor, learned: torch.Tensor, eta: float = 0.9) -> torch.Tensor:
    """One error ``(B,)`` of each sequence: ``eta max + (1 - eta) mean`` of its rows' absolute ones
    ``(B, T)`` (Kapturowski et al. 2019, section 2.3)."""
    errors = errors.masked_fill(~learned, 0.0)
    mean = errors.sum(dim=1) / learned.sum(dim=1)
    return eta * errors.amax(dim=1) + (1.0 - eta) * mean
