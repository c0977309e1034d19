"""IQN's hyperparameters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from vedette_rl.agents.config import EnvSteps, Quantiles, ValueTargetConfig
from vedette_rl.agents.exploration import ExplorationConfig
from vedette_rl.core.agent_config import (
    LearningRate,
    NonNegativeFloat,
    PositiveFloat,
    PositiveFraction,
)
from vedette_rl.networks.config import HiddenSizes, Width
from vedette_rl.settings.for_peers import LEARNER_ONLY
from vedette_rl.settings.stored import IN_SAMPLES_SUMS, IN_WEIGHTS


class IqnConfig(ValueTargetConfig):
    """Implicit quantile networks (Dabney et al. 2018). Section and figure numbers are its own.

    The defaults are for vectors and small fleets, the paper's are for Atari.
    """

    env_steps_per_opt: ClassVar[float] = 2.0

    name: Literal["iqn"] = "iqn"
    """the registry's name of the agent, or ``module:Name``."""
    hidden_sizes: Annotated[HiddenSizes, Field(min_length=2)] = (256, 256)
    """fully connected ReLU layers behind a flattened observation; the last one comes after the
    product with the embedded quantile fraction (f in section 3.1)."""
    batch_size: PositiveInt = 64
    """samples an optimization step draws (32: Mnih et al. 2015, table 1)."""
    n_step: Annotated[int, Field(ge=1, le=255), IN_SAMPLES_SUMS] = 3
    """steps a transition spans before it bootstraps (1: the paper's; 3: Rainbow)."""
    learning_rate: LearningRate = 6.3e-4
    """Adam's learning rate (5e-5: the paper's, as QR-DQN, Dabney et al. 2017, section 5)."""
    adam_eps: Annotated[PositiveFloat, LEARNER_ONLY] = 1e-8
    """Adam's epsilon (0.01 / 32: the paper's, as QR-DQN; 1e-8: Adam's own)."""
    n_quantiles: Annotated[Quantiles, LEARNER_ONLY] = 8
    """N, quantile fractions of the prediction in the loss (equation 3; section 4 compares 1, 8, 32
    and 64 and finds most of the gain at 8; Dopamine takes 64)."""
    n_target_quantiles: Annotated[Quantiles, LEARNER_ONLY] = 8
    """N', quantile fractions of the target in the loss (likewise)."""
    n_action_quantiles: Quantiles = 32
    """K, quantile fractions that an action's value is averaged over (32: section 3.2 and the end of
    section 4)."""
    n_cosines: Annotated[Width, IN_WEIGHTS] = 64
    """n, size of the cosine embedding (64: section 3.1, equation 4)."""
    kappa: Annotated[PositiveFloat, LEARNER_ONLY] = 1.0
    """where the quantile Huber loss turns linear (1: section 2.3)."""
    double: Annotated[bool, LEARNER_ONLY] = True
    """choose the successor's action by the online network. False is the paper's."""
    max_grad_norm: Annotated[NonNegativeFloat, LEARNER_ONLY] = 10.0
    """clip the gradient's norm to this; 0 is off (the paper's)."""
    target_update_interval: Annotated[
        PositiveInt, EnvSteps("a target network every {}", 500, 16, most=2_500), LEARNER_ONLY
    ] = 250
    """optimization steps between two updates of the target network. Where it is not set, those of
    500 environment steps; of 16 for each environment of a larger fleet, up to 2,500 (Ape-X, Horgan
    et al. 2018; 10,000 in Mnih et al. 2015, which the paper follows)."""
    tau: Annotated[PositiveFraction, LEARNER_ONLY] = 1.0
    """how far an update moves the target network: 1 copies."""
    exploration: ExplorationConfig = ExplorationConfig()
    """how actors explore. Acting is risk-neutral."""

    @model_validator(mode="after")
    def _can_remember(self) -> Self:
        self.refuse_beside_memory({"munchausen.alpha=0": self.munchausen.alpha > 0})
        return self
