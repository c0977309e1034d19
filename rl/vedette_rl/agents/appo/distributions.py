"""The distributions of actions that a policy learns, in torch.

Shapes: B rows, A logits of all heads, D heads or action dimensions, C choices of the largest head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import torch

from vedette_rl.agents.action_heads import ActionHeads
from vedette_rl.agents.actions import BoxActions, DiscreteActions
from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.appo.policy import POLICY_ACTION

_NEVER = -1e9
"""The logit of a choice that a smaller head does not have: finite, so that 0 times it is 0."""


class Distribution(Protocol):
    """Reads a policy's output ``(B, ...)``."""

    def log_prob(self, output: torch.Tensor, rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The logarithm ``(B,)`` of the probability of the actions in rows ``(B, ...)``."""
        ...

    def entropy(self, output: torch.Tensor) -> torch.Tensor:
        """``(B,)``."""
        ...

    def divergence(self, output: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The Kullback-Leibler divergence ``(B,)`` of another output's policy from this one's."""
        ...


class Categories:
    """Finitely many actions, in one dimension or in several that are independent."""

    def __init__(self, actions: DiscreteActions, device: str) -> None:
        self._heads = ActionHeads(actions, device)

    def log_prob(self, output: torch.Tensor, rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """See `Distribution`."""
        log_pi_BDC = self._log_pi(output)
        choice_BD1 = self._heads.choices(rows["action"]).unsqueeze(2)
        return log_pi_BDC.gather(2, choice_BD1).squeeze(2).sum(dim=1)

    def entropy(self, output: torch.Tensor) -> torch.Tensor:
        """See `Distribution`."""
        log_pi_BDC = self._log_pi(output)
        return -(log_pi_BDC.exp() * log_pi_BDC).sum(dim=(1, 2))

    def divergence(self, output: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """See `Distribution`."""
        log_pi_BDC = self._log_pi(output)
        return (log_pi_BDC.exp() * (log_pi_BDC - self._log_pi(other))).sum(dim=(1, 2))

    def _log_pi(self, logits_BA: torch.Tensor) -> torch.Tensor:
        return self._heads.by_head(logits_BA.float(), _NEVER).log_softmax(dim=2)


class Normal:
    """A Gaussian of independent dimensions; what is executed is its sample, clipped."""

    def __init__(self, config: AppoConfig) -> None:
        self._bounds = config.log_std_min, config.log_std_max

    def log_prob(self, output: torch.Tensor, rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """See `Distribution`. It is that of the sample: a clipped action has no density."""
        mean_BD, log_std_BD = self._parts(output)
        z_BD = (rows[POLICY_ACTION] - mean_BD) * (-log_std_BD).exp()
        return (-0.5 * (z_BD.square() + _LOG_2_PI) - log_std_BD).sum(dim=1)

    def entropy(self, output: torch.Tensor) -> torch.Tensor:
        """See `Distribution`."""
        _, log_std_BD = self._parts(output)
        return (log_std_BD + 0.5 * (1.0 + _LOG_2_PI)).sum(dim=1)

    def divergence(self, output: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """See `Distribution`."""
        mean_BD, log_std_BD = self._parts(output)
        other_mean_BD, other_log_std_BD = self._parts(other)
        wider_BD = log_std_BD - other_log_std_BD
        apart_BD = (mean_BD - other_mean_BD) * (-other_log_std_BD).exp()
        return (0.5 * (torch.expm1(2.0 * wider_BD) + apart_BD.square()) - wider_BD).sum(dim=1)

    def _parts(self, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean_BD, log_std_BD = output.float().chunk(2, dim=1)
        return mean_BD, log_std_BD.clamp(*self._bounds)


_LOG_2_PI = math.log(2.0 * math.pi)


def distribution_of(
    actions: DiscreteActions | BoxActions, config: AppoConfig, device: str
) -> Distribution:
    """The distribution of these actions."""
    if isinstance(actions, DiscreteActions):
        return Categories(actions, device)
    return Normal(config)
