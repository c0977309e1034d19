"""SAC's hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import PositiveInt, model_validator

from vedette_rl.agents.config import ActorCriticConfig, ImitationConfig
from vedette_rl.core.agent_config import LearningRate, NonNegativeFloat, PositiveFloat
from vedette_rl.networks.layers import BATCH_NORMS, CriticArchitecture
from vedette_rl.settings.for_peers import LEARNER_ONLY
from vedette_rl.settings.later_keys import LATER_KEY
from vedette_rl.settings.stored import IN_WEIGHTS

_WITH_TARGETS = {"learning_rate": 3e-4, "alpha_learning_rate": 3e-4, "policy_delay": 1}
"""The paper's values, in the place of CrossQ's."""


class SacConfig(ActorCriticConfig):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905; table 1 unless said otherwise).

    The defaults are those of later work: normalised observations, and from CrossQ (Bhatt et al.
    2024, arXiv:1902.05605) critics with batch normalization and without targets, a larger step
    size, and a policy that learns in every third step. Critics of another kind have the paper's
    step sizes. `docs/reference/agents.md` has the keys of the paper.
    """

    synonyms: ClassVar[Mapping[str, str]] = {
        "alpha": "ent_coef temperature entropy_coef entropy_coefficient",
        "initial_alpha": "temperature_init init_temperature initial_temperature",
    }

    name: Literal["sac"] = "sac"
    """the registry's name of the agent, or ``module:Name``."""
    learning_rate: LearningRate = 1e-3
    """Adam's learning rate, for the policy and the critics (1e-3: CrossQ). 3e-4, the paper's, where
    it is not set and the critics have targets."""
    normalize_observations: Annotated[bool, IN_WEIGHTS] = True
    """scale each number of the observation by its running mean and deviation (SimBa,
    arXiv:2410.09754; false in the paper)."""
    critic_architecture: Annotated[CriticArchitecture, IN_WEIGHTS] = "batch_norm"
    """each critic's network: ``batch_norm`` normalises each layer's input over the batch and does
    without target critics (CrossQ), ``batch_renorm`` renormalises, too, after 100,000 batches
    (CrossQ's code), ``layer_norm`` (DroQ, arXiv:2110.02034, without its dropout),
    ``residual`` (SimBa, arXiv:2410.09754), or the paper's ``mlp``, which it is with memory where it
    is not set."""
    policy_batch_norm: Annotated[bool, IN_WEIGHTS, LEARNER_ONLY, LATER_KEY] = False
    """the policy learns with batch normalization in front of each of its layers, by its batch's
    statistics (CrossQ). What acts, is exported and evaluated is a plain ``mlp``, into which the
    running statistics are folded. Such a run cannot begin with another's weights."""
    policy_delay: PositiveInt = 3
    """optimization steps of the critics to one of the policy (3: CrossQ). 1, the paper's, where it
    is not set and the critics have targets."""
    alpha_learning_rate: Annotated[LearningRate, LEARNER_ONLY] = 1e-3
    """Adam's learning rate, for log alpha (1e-3: CrossQ). 3e-4, the paper's, where it is not set
    and the critics have targets."""
    alpha: Annotated[Literal["auto"] | NonNegativeFloat, LEARNER_ONLY] = "auto"
    """the temperature: ``auto`` tunes it (section 5), a number fixes it."""
    initial_alpha: Annotated[PositiveFloat, LEARNER_ONLY] = 1.0
    """where ``auto`` begins (1)."""
    target_entropy: Annotated[Literal["auto"] | float, LEARNER_ONLY] = "auto"
    """the entropy that ``auto`` aims at, of actions scaled to [-1, 1]: ``auto`` is minus the number
    of action dimensions."""
    reward_scale: Annotated[PositiveFloat, LEARNER_ONLY] = 1.0
    """multiplies rewards (1; 5 in arXiv:1801.01290, whose alpha was fixed at 1)."""
    log_std_min: float = -20.0
    """lower bound of the policy's log standard deviation (-20: the authors' code)."""
    log_std_max: float = 2.0
    """upper bound of it (2: the authors' code)."""

    imitation: Annotated[ImitationConfig, LEARNER_ONLY] = ImitationConfig()
    """how far the policy imitates the actions in `replay.sources`: ``cross_entropy`` alone."""

    @classmethod
    def fitting_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `AgentConfig`: critics with targets have the step sizes that belong to them; and with
        memory they have targets."""
        usual = super().fitting_defaults(given)
        if given["memory"] != "none":
            return {**usual, **_WITH_TARGETS, "critic_architecture": "mlp"}
        has_targets = given["critic_architecture"] not in BATCH_NORMS
        return {**usual, **_WITH_TARGETS} if has_targets else usual

    @model_validator(mode="after")
    def _policy_can_be_normalized(self) -> SacConfig:
        if not self.policy_batch_norm:
            return self
        self.refuse_beside_memory({"policy_batch_norm=false": True})
        for key, value, usual in (
            ("policy_architecture", self.policy_architecture, "mlp"),
            ("imitation.loss", self.imitation.loss, "none"),
        ):
            if value != usual:
                raise ValueError(
                    f"policy_batch_norm is not built beside {value}: set {key}={usual}"
                )
        return self

    @model_validator(mode="after")
    def _bounds_in_order(self) -> SacConfig:
        self.refuse_beside_memory({"imitation.loss=none": self.imitation.loss != "none"})
        if self.imitation.loss == "margin":
            raise ValueError(
                "imitation.loss is 'margin', which is of action values: set cross_entropy"
            )
        if self.log_std_min >= self.log_std_max:
            raise ValueError(
                f"log_std_min {self.log_std_min} must be below log_std_max {self.log_std_max}"
            )
        return self
