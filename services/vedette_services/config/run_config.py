"""The whole of a run's configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator

from vedette_rl.agents.config import AgentConfig
from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.config import EnvConfig
from vedette_rl.replay.config import ReplayConfig
from vedette_services.config.parts import (
    ActorsConfig,
    EvaluationConfig,
    LearnerConfig,
    StopConfig,
)
from vedette_services.errors import SettingError

APPLIED = "^applied: .+"
"""`RunConfig.preset` of a configuration that has a preset's values."""


class RunConfig(BaseModel):
    """Everything a run is made from; saved as ``RUN/config.toml``."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    preset: Literal["auto", "none"] | Annotated[str, Field(pattern=APPLIED)] = "none"
    """``auto`` begins from the tuned preset of this agent and environment where there is one,
    ``none`` from the defaults. Saved configurations are complete: theirs is ``none``, or
    ``applied: NAME`` for the preset that they began from."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """of everything random."""
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

    @field_validator("agent", mode="before")
    @classmethod
    def _class_by_name(cls, given: Any) -> Any:  # what it is, is what is found out here
        if isinstance(given, Mapping) and isinstance(given.get("name"), str):
            return agent_kind(given["name"]).config.model_validate(dict(given))
        return given


def contradictions(config: RunConfig) -> Iterator[SettingError]:
    """Yield an error for each pair of settings that are right by themselves and contradict."""
    capacity, warmup = config.replay.capacity, config.learner.warmup_period
    batch, stop = config.agent.batch_size, config.stop
    if capacity < warmup:
        yield SettingError(
            "replay.capacity",
            f"{capacity:,} samples can never hold learner.warmup_period's {warmup:,}",
            f"set at least {warmup} or lower learner.warmup_period",
        )
    elif capacity < batch:
        yield SettingError(
            "replay.capacity",
            f"{capacity:,} samples are fewer than agent.batch_size's {batch:,}",
            f"set at least {batch} or lower agent.batch_size",
        )
    actors = config.actors
    if actors.restart_max_s < actors.restart_min_s:
        yield SettingError(
            "actors.restart_max_s",
            f"{actors.restart_max_s:g} s is below actors.restart_min_s's {actors.restart_min_s:g}",
            f"set at least {actors.restart_min_s:g} or lower actors.restart_min_s",
        )
    has_data = any(source.data for source in config.replay.sources.values())
    if actors.count == 0 and not has_data:
        why = "0 actors play, and replay.sources names no data set to learn from"
        yield SettingError("actors.count", why, "set at least 1, or replay.sources.NAME.data")
    if config.learner.pretrain_opts and not has_data:
        why = f"{config.learner.pretrain_opts:,} steps need samples before the actors', and "
        why += "replay.sources names no data set"
        yield SettingError("learner.pretrain_opts", why, "set replay.sources.NAME.data, or 0")
    imitation = getattr(config.agent, "imitation", None)
    if imitation is not None and imitation.loss != "none" and not config.replay.sources:
        why = f"is {imitation.loss}, and replay.sources names nobody to imitate"
        yield SettingError("agent.imitation.loss", why, "set replay.sources.NAME.data, or none")
    others = stop.max_opts or stop.max_env_steps or stop.max_seconds
    if stop.target_return is not None and not config.learner.eval_interval and not others:
        yield SettingError(
            "stop.target_return",
            "is never reached with learner.eval_interval=0",
            "set an eval_interval or another stop condition",
        )
