"""SAC's hyperparameters."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat, model_validator

from vedette_rl.agents.config import ActorCriticConfig, NonNegativeFloat


class SacConfig(ActorCriticConfig):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905; table 1 unless said otherwise).

    An optimization step follows each environment step (table 1: gradient steps), unless
    `replay.samples_per_insert` says otherwise.
    """

    name: Literal["sac"] = "sac"
    """the registry's name of the agent, or ``module:Name``."""
    alpha_learning_rate: PositiveFloat = 3e-4
    """of Adam, for log alpha (3e-4)."""
    alpha: Literal["auto"] | NonNegativeFloat = "auto"
    """the temperature: ``auto`` tunes it (section 5), a number fixes it."""
    initial_alpha: PositiveFloat = 1.0
    """where ``auto`` begins (1)."""
    target_entropy: Literal["auto"] | float = "auto"
    """the entropy that ``auto`` aims at, of actions scaled to [-1, 1]: ``auto`` is minus the number
    of action dimensions."""
    reward_scale: PositiveFloat = 1.0
    """multiplies rewards (1; 5 in arXiv:1801.01290, whose alpha was fixed at 1)."""
    log_std_min: float = -20.0
    """lower bound of the policy's log standard deviation (-20: the authors' code)."""
    log_std_max: float = 2.0
    """upper bound of it (2: the authors' code)."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> SacConfig:
        if self.log_std_min >= self.log_std_max:
            raise ValueError(
                f"log_std_min {self.log_std_min} must be below log_std_max {self.log_std_max}"
            )
        return self
