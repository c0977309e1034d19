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
    """Everything a run is made from; saved as ``RUN/config.toml``.

    Args:
        preset: ``auto`` begins from the tuned preset of this agent and environment where there is
            one, ``none`` from the defaults. A saved configuration says ``none``: it is whole.
        seed: of everything random.
        env: which environment, and how it is made.
        agent: which agent, with its hyperparameters; the class is chosen by `agent.name`.
        actors: how managers play.
        replay: where samples are kept and how they are drawn.
        learner: the learner's intervals.
        evaluation: how evaluations are done.
        stop: when the run is over.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: Literal["auto", "none"] = "none"
    seed: int = Field(0, ge=0, lt=2**31)
    env: EnvConfig
    agent: SerializeAsAny[AgentConfig]
    actors: ActorsConfig = ActorsConfig()
    replay: ReplayConfig = ReplayConfig()
    learner: LearnerConfig = LearnerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    stop: StopConfig = StopConfig()

    @field_validator("agent", mode="before")
    @classmethod
    def _class_by_name(cls, given: Any) -> Any:  # what it is, is what is found out here
        if isinstance(given, Mapping) and isinstance(given.get("name"), str):
            return agent_kind(given["name"]).config.model_validate(dict(given))
        return given
