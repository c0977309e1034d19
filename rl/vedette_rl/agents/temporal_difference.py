"""Discounts, losses of TD errors, and imitation beside them, for temporal-difference agents.

Shapes: B samples, N quantile fractions of the prediction, M of the target, D heads of action
values, C actions of the largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch.nn import functional

from vedette_rl.agents.config import ImitationConfig
from vedette_rl.core.columns import SOURCE
from vedette_rl.networks.adam import schedule_factor

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
        device: of the batches.
        interval: optimization steps from one call to the next.
    """

    def __init__(self, config: ImitationConfig, device: str, interval: int = 1) -> None:
        self._config = config
        self._interval = interval
        self._step = torch.zeros((), device=device)

    def wanted(self, batch: Mapping[str, torch.Tensor]) -> bool:
        """Whether there is a loss of imitation for batches like this one."""
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
        if not self._config.schedule.changes:
            return loss
        self._step += self._interval  # on the device: nothing waits, and a captured step counts on
        return loss * schedule_factor(self._config.schedule, self._step)

    def set_step(self, opt_steps: int) -> None:
        """Go on behind so many optimization steps."""
        self._step.fill_(opt_steps - opt_steps % self._interval)
