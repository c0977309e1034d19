"""The whole of a run's configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator, model_validator

from vedette_rl.agents.registry import BUILT_IN, agent_kind
from vedette_rl.core.agent_config import AgentConfig, UsualQueue
from vedette_rl.envs.config import EnvConfig
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.settings.key_suggestions import KnownKeys
from vedette_rl.settings.part import SettingsPart, known_keys
from vedette_rl.settings.plain_values import refuse_none
from vedette_services.config.parts import (
    ActorsConfig,
    EvaluationConfig,
    LearnerConfig,
    StopConfig,
)

APPLIED = "^applied: .+"
"""`RunConfig.preset` of a configuration that has a preset's values."""


_Part = TypeVar("_Part", bound=SettingsPart)


def _with_defaults(part: _Part, fitting: Mapping[str, Any]) -> _Part:
    """Return a part with other defaults, which do not count as set."""
    fitted = part.model_copy()
    fitted.__dict__.update(fitting)  # the class is frozen
    return fitted


class RunConfig(BaseModel):
    """Everything a run is made from; saved as ``RUN/config.toml``."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    pattern_words: ClassVar[Mapping[str, str]] = {APPLIED: "'applied: NAME'"}
    synonyms: ClassVar[Mapping[str, str]] = {"seed": "random_seed"}

    preset: Literal["auto", "none"] | Annotated[str, Field(pattern=APPLIED)] = "none"
    """``auto`` begins from the tuned preset of this agent and environment where there is one,
    ``none`` from the defaults. Saved configurations are complete: theirs is ``none``, or
    ``applied: NAME`` for the preset that they began from."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """seed of all random generators."""
    env: EnvConfig
    """which environment, and how it is made."""
    agent: SerializeAsAny[AgentConfig]
    """which agent, with its hyperparameters; the class is chosen by `agent.name`."""
    actors: ActorsConfig = ActorsConfig()
    """how managers play."""
    replay: ReplayConfig = ReplayConfig()
    """where samples are kept and how they are drawn."""
    learner: LearnerConfig = LearnerConfig()
    """the learner's intervals."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """how evaluations are done."""
    stop: StopConfig = StopConfig()
    """when the run is over."""

    @model_validator(mode="after")
    def _fit_sequences(self) -> Self:
        """Draw the sequences that the agent learns from, where no others are set."""
        usual = self.agent.usual_sequence
        given = self.replay.model_fields_set
        if usual is None or {"sequence", "burn_in"} <= given:
            return self
        fitting = {"sequence": usual.steps, "burn_in": usual.burn_in}
        update = {name: value for name, value in fitting.items() if name not in given}
        replay = _with_defaults(self.replay, update)
        if replay.sequence:
            replay.check_sequences()
            self.__dict__["replay"] = replay  # the class is frozen
        return self

    @model_validator(mode="after")
    def _fit_queue(self) -> Self:
        """Draw from the queue that the agent learns from, and make the batches and the blocks that
        fit it, where nothing else is set."""
        usual = self.agent.usual_queue
        given = self.replay.model_fields_set
        update: dict[str, Any] = {}
        if usual is not None and "kind" not in given:
            update["kind"] = "queue"
        if update.get("kind", self.replay.kind) != "queue":
            return self
        usual = usual or UsualQueue()
        fitting = {"sequence": self.replay.sequence or usual.steps, "passes": usual.passes}
        update |= {name: value for name, value in fitting.items() if name not in given}
        steps = update.get("sequence", self.replay.sequence)
        if "block" not in given:
            environments = max(1, self.actors.count) * self.actors.envs_per_actor
            unit = math.lcm(max(1, steps), self.agent.batch_size)
            update["block"] = -(-max(usual.block, steps * environments) // unit) * unit
        self.__dict__["replay"] = _with_defaults(self.replay, update)  # the class is frozen
        if "n_buffer" not in self.actors.model_fields_set:
            rows = max(1, steps) * self.actors.envs_per_actor
            self.__dict__["actors"] = _with_defaults(self.actors, {"n_buffer": rows})
        return self

    @property
    def evaluates_on_actors(self) -> bool:
        """Return whether managers play the evaluations, and not the learner."""
        where = self.evaluation.where
        return where == "actors" or (where == "auto" and self.env.is_declared)

    @property
    def evaluates_on_learner(self) -> bool:
        """Return whether the learner plays evaluations, in environments of its own."""
        return self.learner.eval_interval > 0 and not self.evaluates_on_actors

    @property
    def row_steps(self) -> int:
        """Return the steps that a row spans at most: those of sequences are single ones."""
        return 1 if self.replay.sequence else self.agent.n_step

    @property
    def samples_per_opt(self) -> int:
        """Return the samples that an optimization step draws: environment steps of sequences."""
        if self.replay.is_queue:
            return self.agent.batch_size
        return self.agent.batch_size * max(1, self.replay.sequence)

    @property
    def usual_samples_per_insert(self) -> float:
        """Return how often a sample is drawn where `replay.samples_per_insert` is not set."""
        if self.replay.is_queue:
            return float(self.replay.passes)
        return self.agent.usual_samples_per_insert

    @property
    def actors_of_peers(self) -> ActorsConfig:
        """Return `actors` as peers are told it: with the version from which exploration counts,
        and the length of a queue's runs."""
        given = self.actors.explore_from
        begins = self.learner.pretrain_opts if given is None else given
        told: dict[str, Any] = {"explore_from": begins or None}
        if self.replay.is_queue:
            told["run_length"] = self.replay.sequence
        return self.actors.model_copy(update=told)

    @field_validator("env", "replay")
    @classmethod
    def _can_be_saved(cls, given: Any) -> Any:  # either part
        if isinstance(given, EnvConfig):
            for place, wrapper in enumerate(given.wrappers):
                refuse_none(wrapper.kwargs, f"wrappers.{place}.kwargs")
            refuse_none(given.reset_options, "reset_options")
        refuse_none(given.kwargs, "kwargs")
        return given

    @field_validator("agent", mode="before")
    @classmethod
    def _class_by_name(cls, given: Any) -> Any:  # what it is, is what is found out here
        if isinstance(given, Mapping) and isinstance(given.get("name"), str):
            return agent_kind(given["name"]).config.model_validate(dict(given))
        return given


def every_key() -> KnownKeys:
    """Every key that some configuration has: those of each agent that comes with Vedette, too."""
    known = known_keys(RunConfig)
    for kind in BUILT_IN.values():
        known |= known_keys(kind.config, "agent")
    return known


SettingsPart.whole = staticmethod(every_key)
