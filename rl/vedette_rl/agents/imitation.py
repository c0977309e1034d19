"""Behaviour cloning beside an agent's own loss: losses of imitation, and their weight.

Shapes: B samples, D heads of action values, C actions of the largest.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from vedette_rl.agents.config import ImitationConfig
from vedette_rl.core.columns import SOURCE
from vedette_rl.networks.adam import schedule_factor


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


class Imitation:
    """Weighs a loss of imitation: it counts the samples of named sources alone.

    Args:
        config: the weight and its schedule.
        device: the device of the batches.
        interval: optimization steps from one call to the next.
    """

    def __init__(self, config: ImitationConfig, device: str, interval: int = 1) -> None:
        self._config = config
        self._changes = config.schedule.changes
        self._interval = interval
        self._step = torch.zeros((), dtype=torch.int64, device=device)  # float32 ends at 2**24

    def wanted(self, batch: Mapping[str, torch.Tensor]) -> bool:
        """Return True if there is a loss of imitation for batches like this one."""
        return self._config.loss != "none" and SOURCE in batch

    def weigh(
        self,
        loss_B: torch.Tensor,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The mean over the batch of each sample's loss ``(B,)``, 0 for those of actors, times the
        weight of this optimization step and the sample's importance."""
        of_sources_B = (batch[SOURCE] > 0).to(loss_B.dtype)
        if weights is not None:
            of_sources_B = of_sources_B * weights
        loss = self._config.weight * (of_sources_B * loss_B).mean()
        if not self._changes:
            return loss
        self._step += self._interval  # on the device: nothing waits, and a captured step counts on
        return loss * schedule_factor(self._config.schedule, self._step)

    def set_step(self, opt_steps: int) -> None:
        """Go on behind so many optimization steps."""
        self._step.fill_(opt_steps - opt_steps % self._interval)
