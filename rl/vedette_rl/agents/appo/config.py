"""APPO's hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from vedette_rl.core.agent_config import (
    LearningRate,
    NonNegativeFloat,
    PositiveFloat,
    UsualQueue,
)
from vedette_rl.networks.config import HiddenSizes, MemoryConfig
from vedette_rl.networks.layers import TanhArchitecture
from vedette_rl.settings.for_peers import LEARNER_ONLY
from vedette_rl.settings.stored import IN_WEIGHTS, Fraction, ScheduleConfig


class AppoConfig(MemoryConfig):
    """Asynchronous PPO with V-trace (Espeholt et al. 2018; Schulman et al. 2017).

    It learns from a queue (`replay.kind`), in which every step is learned from
    `replay.passes` times. The defaults are Stable-Baselines3's for PPO where nothing else is said.
    """

    synonyms: ClassVar[Mapping[str, str]] = {
        "lambda_": "gae_lambda lam lambda vtrace_lambda",
        "clip": "clip_range clip_param clip_coef clip_eps clip_ratio ppo_clip ppo_clip_ratio",
        "clip_schedule.kind": "anneal_clip",
        "entropy_coef": "entropy_coeff entropy_cost exploration_loss_coeff",
        "value_coef": "vf_coef vf_loss_coeff value_loss_coeff baseline_cost",
        "rho_max": "vtrace_rho vtrace_clip_rho_threshold clip_rho",
        "c_max": "vtrace_c vtrace_clip_c_threshold clip_c",
        "normalize_advantages": "normalize_advantage norm_adv",
        "normalize_values": "normalize_returns norm_reward",
        "initial_log_std": "log_std_init",
    }

    name: Literal["appo"] = "appo"
    """the registry's name of the agent, or ``module:Name``."""
    batch_size: PositiveInt = 256
    """samples of a minibatch: it must divide `replay.block`."""
    discount: Fraction = 0.99
    """gamma, per environment step (0.99)."""
    lambda_: Annotated[Fraction, LEARNER_ONLY] = 0.95
    """how far returns are taken from the rewards, and not from the values (0.95; 1: IMPALA)."""
    correction: Annotated[Literal["vtrace", "none"], LEARNER_ONLY] = "vtrace"
    """``vtrace`` corrects for the models that acted, which are some versions old (Espeholt et al.
    2018, equation 1); ``none`` learns from GAE(lambda) as if they were not."""
    rho_max: Annotated[PositiveFloat, LEARNER_ONLY] = 1.0
    """ratios of the policies count as this at most where they decide whose values are learned
    (1)."""
    c_max: Annotated[PositiveFloat, LEARNER_ONLY] = 1.0
    """ratios of the policies count as this at most where they decide how far later steps count
    (1); at most `rho_max`."""
    clip: Annotated[Annotated[float, Field(gt=0.0, lt=1.0)], LEARNER_ONLY] = 0.2
    """epsilon: how far one block moves the probability of an action (0.2)."""
    clip_schedule: Annotated[ScheduleConfig, LEARNER_ONLY] = ScheduleConfig()
    """how `clip` changes over the run."""
    value_coef: Annotated[NonNegativeFloat, LEARNER_ONLY] = 0.5
    """weight of the values' loss (0.5)."""
    entropy_coef: Annotated[NonNegativeFloat, LEARNER_ONLY] = 0.0
    """weight of the policy's entropy (0)."""
    advantages: Annotated[Literal["pass", "block"], LEARNER_ONLY] = "pass"
    """when advantages and targets are computed: at the beginning of each ``pass`` over a block
    (Andrychowicz et al. 2021, arXiv:2006.05990), or once a ``block`` (Stable-Baselines3)."""
    normalize_advantages: Annotated[bool, LEARNER_ONLY] = True
    """scale the advantages of each minibatch to mean 0 and deviation 1."""
    normalize_values: Annotated[bool, LEARNER_ONLY] = True
    """learn values in running deviations from the running mean of their targets."""
    learning_rate: LearningRate = 3e-4
    """Adam's learning rate (3e-4)."""
    adam_eps: Annotated[PositiveFloat, LEARNER_ONLY] = 1e-5
    """Adam's epsilon (1e-5)."""
    max_grad_norm: Annotated[NonNegativeFloat, LEARNER_ONLY] = 0.5
    """clip the gradient's norm to this; 0 is off (0.5)."""
    hidden_sizes: Annotated[HiddenSizes, IN_WEIGHTS] = (64, 64)
    """hidden layers of the policy and of the values, each with its own (64, 64)."""
    policy_architecture: Annotated[TanhArchitecture, IN_WEIGHTS] = "tanh"
    """what is between these layers: ``tanh``, ``mlp`` (ReLU), ``layer_norm`` or ``residual``."""
    normalize_observations: Annotated[bool, IN_WEIGHTS] = True
    """scale each number of the observation by its running mean and deviation, which count each
    block once."""
    normalizer_kl: Annotated[PositiveFloat, LEARNER_ONLY] = 0.003
    """how far the policy may move, as a mean Kullback-Leibler divergence, where these statistics
    move after a block; they go as much of the way as that allows (0.003)."""
    initial_log_std: Annotated[Annotated[float, Field(ge=-20.0, le=2.0)], LEARNER_ONLY] = 0.0
    """where the logarithm of the policy's deviation begins, of actions scaled to [-1, 1] (0)."""
    log_std_min: float = -20.0
    """lower bound of it (-20)."""
    log_std_max: float = 2.0
    """upper bound of it (2)."""

    @property
    def usual_queue(self) -> UsualQueue | None:
        """See `AgentConfig.usual_queue`."""
        return UsualQueue()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.n_step != 1:
            raise ValueError(
                f"n_step is {self.n_step}, and returns are made of whole runs of steps: leave it "
                "out; lambda_ says how far they reach, replay.sequence how long runs are"
            )
        if self.rho_max < self.c_max:
            raise ValueError(
                f"rho_max is {self.rho_max:g}, below c_max {self.c_max:g}: raise it "
                "(Espeholt et al. 2018, section 4.1)"
            )
        if self.log_std_min >= self.log_std_max:
            raise ValueError(
                f"log_std_min {self.log_std_min} must be below log_std_max {self.log_std_max}"
            )
        if self.random_shift not in (0, "auto"):
            raise ValueError(
                "random_shift moves what the policy sees between two passes over it: set 0"
            )
        return self
