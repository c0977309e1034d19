"""The configuration keys that every agent has, and the numbers that they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, PositiveInt, model_validator

from vedette_rl.errors import WrongSetting
from vedette_rl.settings.for_peers import LEARNER_ONLY
from vedette_rl.settings.part import SettingsPart
from vedette_rl.settings.stored import (
    IN_SAMPLES_SUMS,
    IN_WEIGHTS,
    Fraction,
    ScheduleConfig,
)

PositiveFraction = Annotated[float, Field(gt=0.0, le=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0, le=1e9)]
NonNegativeFloat = Annotated[float, Field(ge=0.0, le=1e9)]
LearningRate = Annotated[float, Field(gt=0.0, le=1e3)]


@dataclass(frozen=True, slots=True)
class UsualSequence:
    """The sequences that an agent learns from where nothing is set.

    Args:
        steps: `replay.sequence`.
        burn_in: `replay.burn_in`.
    """

    steps: int = 40
    burn_in: int = 20


@dataclass(frozen=True, slots=True)
class UsualQueue:
    """The queue that an agent learns from where nothing is set.

    Args:
        steps: `replay.sequence`, the steps of a run.
        block: `replay.block`, samples that are learned from together.
        passes: `replay.passes` over each block.
    """

    steps: int = 64
    block: int = 2048
    passes: int = 4


class AgentConfig(SettingsPart):
    """An agent's hyperparameters. Each agent's own class adds those of its paper."""

    model_config = ConfigDict(allow_inf_nan=False)
    place = "agent"
    synonyms: ClassVar[Mapping[str, str]] = {
        "name": "agent algo algorithm alg policy_type",
        "batch_size": "batch train_batch_size minibatch_size mini_batch_size batchsize",
        "discount": "gamma discount_factor discounting",
        "n_step": "n_steps nstep num_steps multi_step n_step_return nsteps",
        "learning_rate": "lr alpha_lr step_size learning_rate_start critic_lr q_lr lr_rate",
        "schedule.kind": "lr_schedule learning_rate_schedule lr_scheduler",
        # keys that several agents declare, each with a default of its own
        "double": "double_q double_dqn ddqn use_double is_double",
        "loss": "loss_fn critic_loss loss_function",
        "max_grad_norm": "grad_clip gradient_clip clip_grad clip_grad_norm grad_norm max_grad "
        "gradient_clipping max_gradient_norm",
        "n_quantiles": "num_quantiles num_tau_samples sample_size",
        "target_update_interval": "target_network_frequency target_update_freq target_update "
        "target_network_update_freq target_update_period target_update_frequency "
        "soft_update_interval",
        "tau": "polyak soft_update_tau target_tau",
    }

    env_steps_per_opt: ClassVar[float] = 4.0
    """environment steps to an optimization step where a run sets no `replay.samples_per_insert` (4:
    Mnih et al. 2015, table 1, update frequency). An agent's own class has its paper's."""

    learns_sequences: ClassVar[bool] = False
    """True of an agent that learns from sequences, which `replay.sequence` has drawn, or from whole
    runs of a queue, of which a minibatch then has all steps: its own class says so."""

    @property
    def usual_sequence(self) -> UsualSequence | None:
        """The sequences that are drawn where `replay.sequence` is not set; None: single samples."""
        return None

    @property
    def usual_queue(self) -> UsualQueue | None:
        """The queue of an agent that learns from blocks of runs (`replay.kind`); None of others,
        which draw samples again and again."""
        return None

    name: Annotated[str, IN_WEIGHTS]
    """the registry's name of the agent, or ``module:Name``."""
    batch_size: Annotated[PositiveInt, LEARNER_ONLY] = 32
    """samples an optimization step draws (32: Mnih et al. 2015, table 1)."""
    discount: Annotated[Fraction, IN_SAMPLES_SUMS] = 0.99
    """gamma, per environment step (0.99: Mnih et al. 2015, table 1)."""
    n_step: Annotated[int, Field(ge=1, le=255), IN_SAMPLES_SUMS] = 1
    """steps a transition spans before it bootstraps (1: one-step TD; 3 in Ape-X and Rainbow). The
    step processor sums the rewards; the agent discounts by the transition's own ``n_steps``."""
    learning_rate: Annotated[LearningRate, LEARNER_ONLY] = 1e-4
    """Adam's step size."""
    schedule: Annotated[ScheduleConfig, LEARNER_ONLY] = ScheduleConfig()
    """how all learning rates change over the run."""

    @classmethod
    def explain_foreign(
        cls, unnamed: tuple[Any, ...], values: Mapping[str, Any]
    ) -> WrongSetting | None:
        """Explain arguments of Stable-Baselines3's agents, whose class is the training, too."""
        others = [name for name in _OF_SB3 if name in values and name not in cls.model_fields]
        if not unnamed and not others:
            return None
        env = values.get("env", unnamed[1] if len(unnamed) > 1 else "CartPole-v1")
        given = ", ".join([*map(repr, unnamed), *(f"{name}=" for name in others)])
        why = f"{given}: an agent's class has its settings alone, each by its name"
        return WrongSetting(
            "agent", why, _train_instead(cls, env if isinstance(env, str) else "...")
        )

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            """Explain the methods of Stable-Baselines3's agents, which settings do not have."""
            if name in _METHODS:
                fix = f"; {_train_instead(type(self))}" if name == "learn" else ""
                raise AttributeError(f"an agent's settings do not {name}: {_METHODS[name]}{fix}")
            return super().__getattr__(name)

    @classmethod
    def alternatives(cls) -> Mapping[str, type[SettingsPart]]:
        """The agents that come with Vedette: all, once `vedette_rl.agents.registry` is loaded."""
        kinds = _subclasses(AgentConfig)
        ours = [kind for kind in kinds if kind.__module__.startswith("vedette_rl.agents.")]
        named = {kind.model_fields["name"].default: kind for kind in ours}
        return {name: kind for name, kind in named.items() if isinstance(name, str)}

    @classmethod
    def fitting_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Defaults that follow other keys, those of `given`, in the place of the fields' own."""
        return {}

    @model_validator(mode="after")
    def _fit_defaults(self) -> Self:
        for name, value in self.fitting_defaults(dict(self)).items():
            if name not in self.model_fields_set:
                self.__dict__[name] = value  # the class is frozen
        return self

    @property
    def usual_samples_per_insert(self) -> float:
        """Samples drawn for each inserted, as in the agent's paper."""
        return self.batch_size / self.env_steps_per_opt


_OF_SB3 = ("env", "policy", "policy_kwargs", "verbose", "tensorboard_log", "total_timesteps")
_METHODS = {
    "learn": "vedette.train learns",
    "predict": "a policy acts, which result.load_policy() of vedette.train's result loads",
    "save": "a run saves itself, and vedette.export_policy writes its policy",
    "load": "vedette.load_policy loads an exported policy",
}


def _train_instead(kind: type[AgentConfig], env: str = "CartPole-v1") -> str:
    name = kind.model_fields["name"].default
    agent = f"vedette.{name.upper()}(...)" if name in AgentConfig.alternatives() else "..."
    stop = "vedette.StopConfig(max_env_steps=...)"
    return f"write vedette.train(env={env!r}, agent={agent}, stop={stop})"


def _subclasses(kind: type[AgentConfig]) -> Iterator[type[AgentConfig]]:
    """Yield all that are loaded, those of subclasses too."""
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
