"""The whole of a run's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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


class RunConfig(BaseModel):
    """Everything a run is made from; saved as ``RUN/config.toml``."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    preset: Literal["auto", "none"] = "none"
    """``auto`` begins from the tuned preset of this agent and environment where there is one,
    ``none`` from the defaults. Saved configurations use ``none`` because they are complete."""
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
