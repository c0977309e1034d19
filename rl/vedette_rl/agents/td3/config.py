"""TD3's hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import PositiveInt

from vedette_rl.agents.config import ActorCriticConfig
from vedette_rl.core.agent_config import NonNegativeFloat
from vedette_rl.settings.for_peers import LEARNER_ONLY


class Td3Config(ActorCriticConfig):
    """Twin delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477; values of the authors' code)."""

    synonyms: ClassVar[Mapping[str, str]] = {
        "target_noise": "target_policy_noise policy_noise",
        "target_noise_clip": "noise_clip",
        "exploration_noise": "action_noise expl_noise",
    }

    name: Literal["td3"] = "td3"
    """the registry's name of the agent, or ``module:Name``."""
    policy_delay: PositiveInt = 2
    """optimization steps of the critics to one of the policy (2: section 5.2)."""
    target_update_interval: PositiveInt = 2
    """optimization steps between two updates of the target networks (2: algorithm 1)."""
    exploration_noise: NonNegativeFloat = 0.1
    """standard deviation of the noise on actors' actions, of actions scaled to [-1, 1] (0.1:
    section 6.1)."""
    target_noise: Annotated[NonNegativeFloat, LEARNER_ONLY] = 0.2
    """standard deviation of the noise on the target's action (0.2: section 6.1)."""
    target_noise_clip: Annotated[NonNegativeFloat, LEARNER_ONLY] = 0.5
    """bound of that noise (0.5: section 6.1)."""
