"""Statistics of observations that move no further than the policy may.

A policy's output depends on them. Where they move after the policy has become exact, it changes in
a direction that no return asked for; on Pendulum-v1 that undid what was learned
(docs/decisions/appo.md, "Statistics of observations").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.core.learning import State
from vedette_rl.device.host_copy import Pending
from vedette_rl.networks.encoder import Obs
from vedette_rl.networks.layers import NormalizedColumns
from vedette_rl.networks.torch_network import ObsNormalizer

_HALVINGS = 15
"""How often the way to the statistics of all blocks is halved before nothing of it is gone."""


class SteadyNormalizer:
    """Normalizes by statistics that follow those of all blocks as far as the policy allows.

    Args:
        columns: the columns of the observation; none switches it off.
        device: the device of the blocks.
        max_divergence: how far one move may change the policy.
    """

    def __init__(self, columns: NormalizedColumns, device: str, max_divergence: float) -> None:
        self._columns = columns
        self._max_divergence = max_divergence
        self._seen = ObsNormalizer(columns, device)
        self._used = ObsNormalizer(columns, device)

    def normalize(self, obs: Obs) -> Obs:
        """The same columns, normalised."""
        return self._used.normalize(obs)

    @torch.no_grad()
    def update(
        self,
        obs: Obs,
        divergence: Callable[[], torch.Tensor],
        counted_R: torch.Tensor | None = None,
    ) -> None:
        """Count a block, and move towards its statistics.

        Args:
            obs: its observations ``(R, ...)``.
            divergence: how far the policy, which `normalize` serves, is from what it was when this
                was called: a scalar.
            counted_R: 1 where a row counts, and 0 for padding ``(R,)``; None: all count.
        """
        if not self._columns.columns:
            return
        self._seen.update(obs, counted_R)
        mean, scale = self._used.mean.clone(), self._used.scale.clone()
        # A binary search by tensors alone: a captured step takes no branch.
        fewest = torch.zeros_like(mean[0])
        most = torch.full_like(fewest, _HALVINGS)
        for _ in range(_HALVINGS.bit_length()):
            halvings = ((fewest + most) / 2).floor()
            self._move(mean, scale, halvings)
            allowed = divergence() <= self._max_divergence
            fewest, most = (
                torch.where(allowed, fewest, halvings + 1),
                torch.where(allowed, halvings, most),
            )
        self._move(mean, scale, most)

    def _move(self, mean: torch.Tensor, scale: torch.Tensor, halvings: torch.Tensor) -> None:
        """Use statistics between these and those of all blocks."""
        share = torch.where(halvings < _HALVINGS, (-halvings).exp2(), 0.0)
        torch.lerp(mean, self._seen.mean, share, out=self._used.mean)
        torch.mul(scale, (self._seen.scale / scale).pow(share), out=self._used.scale)

    def pending_arrays(self) -> Pending[dict[str, NDArray[np.float32]]]:
        """The part of the model that acting needs, of copies that are begun."""
        return self._used.pending_arrays()

    def pending_state(self) -> tuple[Pending[State], Pending[State]]:
        """The statistics in use, and those of all blocks; of copies that are begun."""
        return self._used.pending_state(), self._seen.pending_state()

    def set_state(self, used: State, seen: State) -> None:
        """Continue from these statistics.

        Raises:
            ModelMismatchError: they are of other observations.
        """
        self._used.set_state(used)
        self._seen.set_state(seen)
