"""The whole of a run's configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import gymnasium as gym
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator

from vedette_rl.agents.config import (
    ActorCriticConfig,
    AgentConfig,
    ImitationConfig,
    MunchausenConfig,
    NetworkConfig,
)
from vedette_rl.agents.exploration import ExplorationConfig
from vedette_rl.agents.registry import agent_kind
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.envs.config import EnvConfig
from vedette_rl.import_by_name import is_import_name
from vedette_rl.networks.layers import float_parts
from vedette_rl.networks.observation import (
    CustomInput,
    NetworkInput,
    Parts,
    choose_input,
    images_of,
)
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
    pattern_words: ClassVar[Mapping[str, str]] = {APPLIED: "'applied: NAME'"}

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

    @property
    def evaluates_on_actors(self) -> bool:
        """Return whether managers play the evaluations, and not the learner."""
        where = self.evaluation.where
        return where == "actors" or (where == "auto" and self.env.is_declared)

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
    yield from _rank_contradictions(config)
    others = stop.max_opts or stop.max_env_steps or stop.max_seconds
    if stop.target_return is not None and not config.learner.eval_interval and not others:
        yield SettingError(
            "stop.target_return",
            "is never reached with learner.eval_interval=0",
            "set an eval_interval or another stop condition",
        )


def _rank_contradictions(config: RunConfig) -> Iterator[SettingError]:
    ranks, batch = config.learner.ranks, config.agent.batch_size
    if batch % ranks:
        why = f"{ranks} ranks cannot share agent.batch_size's {batch} samples evenly"
        yield SettingError("learner.ranks", why, "set a divisor of it")
    if ranks > 1 and (config.replay.sources or is_import_name(config.replay.name)):
        why = "several ranks share no replay.sources, and no replay of your own"
        yield SettingError("learner.ranks", why, "set 1")


def settings_without_effect(
    config: RunConfig, observation: gym.Space[Any] | None, *, in_process: bool = False
) -> Iterator[str]:
    """Yield a line for each reason why settings that differ from their defaults change nothing.

    Args:
        observation: that the agent's network takes; None: the network is the agent's own matter.
        in_process: the run is of one process.
    """
    unused = [*_unused_by_daemons(config), *_unused_by_agent(config.agent)]
    if observation is not None and isinstance(config.agent, NetworkConfig):
        unused += _unused_by_network(config.agent, choose_input(config.agent, observation))
        if not float_parts(observation):
            why = "the observation has no part of floating-point numbers"
            unused.append(("agent.normalize_observations", why))
    if in_process:
        unused.append((_OF_DAEMONS, "--in-process starts no daemons, and its replay is in memory"))
    for keys, why in unused:
        if given := [text for key in keys.split() if (text := _non_default(config, key))]:
            yield f"without effect: {', '.join(given)}, because {why}"


def _non_default(config: RunConfig, key: str) -> str:
    """A key with its value as `--set` takes it; "" where it has its default, or does not exist."""
    *path, name = key.split(".")
    part: Any = config  # a part within a part
    for inner in path:
        part = getattr(part, inner, None)
    field = type(part).model_fields.get(name) if isinstance(part, BaseModel) else None
    if field is None:
        return ""
    fitting = part.fitting_defaults(dict(part)) if isinstance(part, AgentConfig) else {}
    usual = field.get_default(call_default_factory=True)
    if getattr(part, name) == fitting.get(name, usual):
        return ""
    value = part.model_dump(mode="json")[name]
    return f"{key}={value if isinstance(value, str) else json.dumps(value)}"


_OF_DAEMONS = (
    "replay.directory replay.sync_interval_s actors.step_timeout_s actors.restart_min_s "
    "actors.restart_max_s learner.max_managers learner.model_dtype learner.ranks"
)
Unused = Iterator[tuple[str, str]]
"""Keys with blanks between them, and the reason why they change nothing."""


def _unused_by_daemons(config: RunConfig) -> Unused:
    replay, actors, env = config.replay, config.actors, config.env
    if config.learner.init_from is None:
        yield "learner.init_checkpoint", "learner.init_from (--init-from) names no run"
    if is_import_name(replay.name):
        yield "replay.prioritized", f"replay.name is {replay.name}"
    if not replay.prioritized:
        keys = ("alpha", "beta_0", "beta_final", "beta_steps", "priority_epsilon")
        yield " ".join(f"replay.{key}" for key in keys), "replay.prioritized is false"
    if replay.samples_per_insert == 0.0:
        yield "replay.error_buffer", "replay.samples_per_insert is 0"
    if actors.step_processor != "her":
        yield "actors.her_goals", "actors.step_processor is not her"
    if not is_import_name(actors.step_processor):
        yield "actors.steps_per_row", "actors.step_processor is none of your own"
    if env.is_vector_form:
        yield "env.stepping", f"env.vectorization is {env.vectorization}"
    if not config.learner.eval_interval:
        yield "evaluation.end_timeout_s", "learner.eval_interval is 0"


_EXPLORATION = {
    "epsilon_base": ("ladder",),
    "epsilon_alpha": ("ladder",),
    "epsilon_start": ("linear", "auto"),
    "epsilon_final": ("linear", "auto", "constant"),
    "epsilon_steps": ("linear", "auto"),
    "temperature": ("softmax",),
}
"""The kinds of exploration that use a setting; one of the user's own may use all."""


def _unused_by_agent(agent: AgentConfig) -> Unused:
    if agent.schedule.kind == "constant":
        yield "agent.schedule.total_opts agent.schedule.final", "agent.schedule.kind is constant"
    exploration = getattr(agent, "exploration", None)
    if isinstance(exploration, ExplorationConfig) and not is_import_name(exploration.kind):
        kind = exploration.kind
        keys = [
            f"agent.exploration.{key}" for key, used in _EXPLORATION.items() if kind not in used
        ]
        yield " ".join(keys), f"agent.exploration.kind is {kind}"
    imitation = getattr(agent, "imitation", None)
    if isinstance(imitation, ImitationConfig) and imitation.loss != "margin":
        keys = ["agent.imitation.weight"] * (imitation.loss == "none") + ["agent.imitation.margin"]
        yield " ".join(keys), f"agent.imitation.loss is {imitation.loss}"
    munchausen = getattr(agent, "munchausen", None)
    if isinstance(munchausen, MunchausenConfig):
        if munchausen.alpha:
            yield "agent.double", "agent.munchausen.alpha is above 0: no action is chosen"
        else:
            unused = "agent.munchausen.temperature agent.munchausen.lowest"
            yield unused, "agent.munchausen.alpha is 0"
    if getattr(agent, "alpha", "auto") != "auto":
        keys = ["agent.initial_alpha", "agent.target_entropy", "agent.alpha_learning_rate"]
        yield " ".join(keys), "agent.alpha is a number"
    if isinstance(agent, ActorCriticConfig) and agent.n_quantiles > 1:
        yield "agent.loss", "critics of several quantiles have their own loss"
    if isinstance(agent, SacConfig) and agent.critic_architecture == "batch_norm":
        why = "agent.critic_architecture is batch_norm, which does without target critics"
        yield "agent.tau agent.target_update_interval", why


def _unused_by_network(agent: NetworkConfig, seen: NetworkInput) -> Unused:
    images, own = images_of(seen), isinstance(seen, CustomInput)
    of_parts = "agent.image_features agent.vector_features agent.shared_cnn"
    of_images = f"{of_parts} agent.convolutions agent.shared_encoder agent.cnn_hidden_sizes"
    if own:
        yield f"{of_images} agent.random_shift", f"agent.network is {agent.network}"
        if agent.custom_network_is_whole:
            yield "agent.hidden_sizes agent.dueling", f"{agent.network} is the whole network"
    elif not images:
        why = "no part of the observation is an image that goes through convolutions"
        yield f"{of_images} agent.random_shift", why
    elif isinstance(seen, Parts):
        yield "agent.cnn_hidden_sizes", "agent.hidden_sizes are behind the features of images"
        if not seen.vector:
            yield "agent.vector_features", "the observation has nothing but images"
        if len(images) == 1:
            yield "agent.shared_cnn", "the observation has one image"
    else:
        yield of_parts, "the observation is one image"
        yield "agent.hidden_sizes", "agent.cnn_hidden_sizes are behind the image"
