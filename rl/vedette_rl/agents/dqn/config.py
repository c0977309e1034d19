"""DQN's hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from vedette_rl.agents.config import EnvSteps, ImitationConfig, ValueTargetConfig
from vedette_rl.agents.exploration import ExplorationConfig
from vedette_rl.core.agent_config import (
    LearningRate,
    NonNegativeFloat,
    PositiveFloat,
    PositiveFraction,
)
from vedette_rl.import_by_name import is_import_name
from vedette_rl.settings.for_peers import LEARNER_ONLY
from vedette_rl.settings.stored import IN_SAMPLES_SUMS, IN_WEIGHTS


class DqnConfig(ValueTargetConfig):
    """Deep Q-learning (Mnih et al. 2015), with its usual options.

    The defaults are for vectors and small fleets; Atari's are in the preset ``dqn-ALE``.
    """

    synonyms: ClassVar[Mapping[str, str]] = {
        "dueling": "dueling_dqn use_dueling is_dueling dueling_network",
    }
    env_steps_per_opt: ClassVar[float] = 2.0
    custom_network_is_whole: ClassVar[bool] = True

    name: Literal["dqn"] = "dqn"
    """the registry's name of the agent, or ``module:Name``."""
    batch_size: PositiveInt = 128
    """samples an optimization step draws (32: Mnih et al. 2015, table 1)."""
    n_step: Annotated[int, Field(ge=1, le=255), IN_SAMPLES_SUMS] = 3
    """steps a transition spans before it bootstraps (3: Ape-X and Rainbow; 1: one-step TD)."""
    learning_rate: LearningRate = 6.3e-4
    """Adam's learning rate (Mnih et al. 2015: 2.5e-4 with RMSProp)."""
    adam_eps: Annotated[PositiveFloat, LEARNER_ONLY] = 1e-8
    """Adam's epsilon (1.5e-4 in Rainbow, Hessel et al. 2018; 1e-8: Adam's own)."""
    loss: Annotated[Literal["huber", "mse"], LEARNER_ONLY] = "huber"
    """``huber`` clips the TD error's gradient to [-1, 1], as the paper does; ``mse`` does not."""
    double: Annotated[bool, LEARNER_ONLY] = True
    """choose the successor's action by the online network and value it by the target network (van
    Hasselt et al. 2016). False is the paper's DQN."""
    dueling: Annotated[bool, IN_WEIGHTS] = False
    """separate streams for the state's value and the actions' advantages (Wang et al. 2016,
    equation 9). The last hidden layer is in each stream, as in that paper."""
    max_grad_norm: Annotated[NonNegativeFloat, LEARNER_ONLY] = 10.0
    """clip the gradient's norm to this (10: Wang et al. 2016); 0 is off."""
    target_update_interval: Annotated[
        PositiveInt, EnvSteps("a target network every {}", 500, 16, most=2_500), LEARNER_ONLY
    ] = 250
    """optimization steps between two updates of the target network. Where it is not set, those of
    500 environment steps; of 16 for each environment of a larger fleet, up to 2,500 (Ape-X, Horgan
    et al. 2018, appendix C; 10,000 in Mnih et al. 2015)."""
    tau: Annotated[PositiveFraction, LEARNER_ONLY] = 1.0
    """how far an update moves the target network: 1 copies (Mnih et al. 2015); less than 1 with an
    interval of 1 is a soft update (Lillicrap et al. 2016)."""
    imitation: Annotated[ImitationConfig, LEARNER_ONLY] = ImitationConfig()
    """how far the actions in `replay.sources` are imitated."""
    exploration: ExplorationConfig = ExplorationConfig()
    """how actors explore."""

    @model_validator(mode="after")
    def _can_remember(self) -> Self:
        if self.core_size:  # without one, an own agent's `network` may be anything
            self.refuse_beside_memory(
                {
                    "munchausen.alpha=0": self.munchausen.alpha > 0,
                    "imitation.loss=none": self.imitation.loss != "none",
                    "network=auto": is_import_name(self.network),
                }
            )
        return self
