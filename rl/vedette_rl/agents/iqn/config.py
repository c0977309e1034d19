"""IQN's hyperparameters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from vedette_rl.agents.config import HiddenSizes, NetworkConfig, NonNegativeFloat, PositiveFraction
from vedette_rl.agents.exploration import ExplorationConfig
from vedette_rl.stored_settings import IN_WEIGHTS


class IqnConfig(NetworkConfig):
    """Implicit quantile networks (Dabney et al. 2018). Section and figure numbers are its own."""

    name: Literal["iqn"] = "iqn"
    """the registry's name of the agent, or ``module:Name``."""
    hidden_sizes: Annotated[HiddenSizes, Field(min_length=2)] = (256, 256)
    """fully connected ReLU layers behind a flattened observation; the last one comes after the
    product with the embedded quantile fraction (f in section 3.1)."""
    learning_rate: PositiveFloat = 5e-5
    """of Adam (5e-5: as QR-DQN, Dabney et al. 2017, section 5)."""
    adam_eps: PositiveFloat = 0.01 / 32
    """Adam's epsilon (0.01 / 32: as QR-DQN)."""
    n_quantiles: PositiveInt = 8
    """N, quantile fractions of the prediction in the loss (equation 3; section 4 compares 1, 8, 32
    and 64 and finds most of the gain at 8; Dopamine takes 64)."""
    n_target_quantiles: PositiveInt = 8
    """N', quantile fractions of the target in the loss (likewise)."""
    n_action_quantiles: PositiveInt = 32
    """K, quantile fractions that an action's value is averaged over (32: section 3.2 and the end of
    section 4)."""
    n_cosines: Annotated[PositiveInt, IN_WEIGHTS] = 64
    """n, size of the cosine embedding (64: section 3.1, equation 4)."""
    kappa: PositiveFloat = 1.0
    """where the quantile Huber loss turns linear (1: section 2.3)."""
    double: bool = False
    """choose the successor's action by the online network. False is the paper's."""
    max_grad_norm: NonNegativeFloat = 0.0
    """clip the gradient's norm to this; 0 is off (the paper's)."""
    target_update_interval: PositiveInt = 2_500
    """optimization steps between two updates of the target network (2,500: Ape-X, Horgan et al.
    2018; 10,000 in Mnih et al. 2015, which the paper follows)."""
    tau: PositiveFraction = 1.0
    """how far an update moves the target network: 1 copies."""
    exploration: ExplorationConfig = ExplorationConfig()
    """how actors explore. Acting is risk-neutral."""
