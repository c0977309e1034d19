"""SAC's hyperparameters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from vedette_rl.agents.config import HiddenSizes, NetworkConfig, NonNegativeFloat, PositiveFraction
from vedette_rl.stored_settings import IN_WEIGHTS


class SacConfig(NetworkConfig):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905; table 1 unless said otherwise).

    An optimization step follows each environment step (table 1: gradient steps), unless
    `replay.samples_per_insert` says otherwise.
    """

    env_steps_per_opt: ClassVar[float] = 1.0
    lone_image_is_normalized: ClassVar[bool] = True

    name: Literal["sac"] = "sac"
    """the registry's name of the agent, or ``module:Name``."""
    batch_size: PositiveInt = 256
    """samples an optimization step draws (256)."""
    learning_rate: PositiveFloat = 3e-4
    """of Adam, for the policy and the critics (3e-4)."""
    alpha_learning_rate: PositiveFloat = 3e-4
    """of Adam, for log alpha (3e-4)."""
    adam_eps: PositiveFloat = 1e-8
    """Adam's epsilon (1e-8: Adam's own)."""
    hidden_sizes: HiddenSizes = (256, 256)
    """of the policy and of each critic (256, 256)."""
    random_shift: Annotated[int, Field(ge=0, le=255)] = 4
    """of images, in pixels (4: DrQ-v2, arXiv:2107.09645)."""
    shared_encoder: Annotated[bool, IN_WEIGHTS] = True
    """of images: the policy takes the critics' encoder, which the critics' loss alone trains
    (SAC-AE, arXiv:1910.01741; DrQ-v2). False: it learns its own."""
    n_critics: Annotated[PositiveInt, IN_WEIGHTS] = 2
    """Q-functions, of which the smallest counts (2: section 6)."""
    loss: Literal["mse", "huber"] = "mse"
    """of the critics; ``mse`` is equation 5 without its factor 1/2, which Adam does not see
    (`max_grad_norm` does); ``huber`` is border's SmoothL1."""
    alpha: Literal["auto"] | NonNegativeFloat = "auto"
    """the temperature: ``auto`` tunes it (section 5), a number fixes it."""
    initial_alpha: PositiveFloat = 1.0
    """where ``auto`` begins (1)."""
    target_entropy: Literal["auto"] | float = "auto"
    """the entropy that ``auto`` aims at, of actions scaled to [-1, 1]: ``auto`` is minus the number
    of action dimensions."""
    reward_scale: PositiveFloat = 1.0
    """multiplies rewards (1; 5 in arXiv:1801.01290, whose alpha was fixed at 1)."""
    tau: PositiveFraction = 0.005
    """how far an update moves the target critics (5e-3)."""
    target_update_interval: PositiveInt = 1
    """optimization steps between two of these updates (1)."""
    log_std_min: float = -20.0
    """lower bound of the policy's log standard deviation (-20: the authors' code)."""
    log_std_max: float = 2.0
    """upper bound of it (2: the authors' code)."""
    max_grad_norm: NonNegativeFloat = 0.0
    """clip the norm of each gradient to this; 0 is off (the paper's)."""
    uniform_warmup: bool = True
    """act uniformly at random on an untrained model (version 0), as the authors' code does for its
    first steps."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> SacConfig:
        if self.log_std_min >= self.log_std_max:
            raise ValueError(
                f"log_std_min {self.log_std_min} must be below log_std_max {self.log_std_max}"
            )
        return self
