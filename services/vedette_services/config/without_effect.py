"""Settings that change nothing in a run, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
from pydantic import BaseModel

from vedette_rl.agents.action_noise import color_exponent
from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.config import ActorCriticConfig, ImitationConfig, MunchausenConfig
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.exploration import ExplorationConfig
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.td3.config import Td3Config
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.envs.spaces import Spaces
from vedette_rl.import_by_name import is_import_name
from vedette_rl.networks.config import MemoryConfig, NetworkConfig
from vedette_rl.networks.layers import float_parts
from vedette_rl.networks.observation import (
    CustomInput,
    NetworkInput,
    Parts,
    choose_input,
    images_of,
)
from vedette_rl.settings.stored import ScheduleConfig
from vedette_services.config.run_config import RunConfig


def settings_without_effect(
    config: RunConfig,
    observation: gym.Space[Any] | None,
    *,
    action: gym.Space[Any] | None = None,
    in_process: bool = False,
) -> Iterator[str]:
    """Yield a line for each reason why settings that differ from their defaults change nothing.

    Args:
        observation: that the agent's network takes; None: the network is the agent's own matter.
        action: of the environment; None: it is not known.
        in_process: the run is of one process.
    """
    unused = [*_unused_by_daemons(config), *_unused_with(config.agent, observation, action)]
    if in_process:
        unused.append((_OF_DAEMONS, "--in-process starts no daemons, and its replay is in memory"))
        if not config.replay.is_queue:
            unused.append(("replay.error_buffer", "--in-process draws in lock step"))
    for keys, why in unused:
        if given := [text for key in keys.split() if (text := _non_default(config, key))]:
            yield f"without effect: {', '.join(given)}, because {why}"


def unused_keys_of_agent(agent: AgentConfig, spaces: Spaces) -> frozenset[str]:
    """The keys of `agent` that change nothing with these spaces, whatever their values."""
    built_in = isinstance(agent, NetworkConfig) and isinstance(agent.network, str)
    unused = _unused_with(agent, spaces.observation if built_in else None, spaces.action)
    return frozenset(key for keys, _ in unused for key in keys.split())


def _unused_with(
    agent: AgentConfig, observation: gym.Space[Any] | None, action: gym.Space[Any] | None
) -> Unused:
    yield from _unused_by_agent(agent, action)
    if observation is not None and isinstance(agent, NetworkConfig):
        yield from _unused_by_input(agent, observation)


def _non_default(config: RunConfig, key: str) -> str:
    """A key with its value as `--set` takes it; "" where it has its default, or does not exist."""
    *path, name = key.split(".")
    part: Any = config  # a part within a part
    for inner in path:
        part = part.get(inner) if isinstance(part, Mapping) else getattr(part, inner, None)
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
    "actors.restart_max_s learner.max_managers learner.model_dtype learner.ranks "
    "learner.snapshot learner.journal replay.keep evaluation.episode_timeout_s"
)


Unused = Iterator[tuple[str, str]]
"""Keys with blanks between them, and the reason why they change nothing."""


def _unused_by_daemons(config: RunConfig) -> Unused:
    replay = config.replay
    actors = config.actors
    env = config.env
    if config.learner.init_from is None:
        yield "learner.init_checkpoint", "learner.init_from (--init-from) names no run"
    if not is_import_name(replay.name):  # one's own may use them
        keys = ("alpha", "beta_0", "beta_final", "beta_steps", "priority_epsilon")
        if not replay.prioritized:
            yield " ".join(f"replay.{key}" for key in keys), "replay.prioritized is false"
        elif replay.beta_0 == replay.beta_final:
            yield "replay.beta_steps", "replay.beta_final is replay.beta_0"
    for name, source in replay.sources.items():
        key = f"replay.sources.{name}"
        yield from _unused_by_schedule(f"{key}.schedule", source.schedule)
        if source.data:
            yield f"{key}.capacity", "a data set is kept whole"
    if not replay.sequence:
        yield "replay.burn_in", "replay.sequence is 0: single samples are drawn"
    if replay.is_queue:
        ratio = "replay.samples_per_insert replay.error_buffer learner.warmup_period replay.keep"
        yield ratio, "replay.kind is queue: each sample is drawn replay.passes times"
        yield "actors.run_length", "replay.kind is queue, whose runs are of replay.sequence steps"
    else:
        queue = "replay.block replay.passes replay.ahead replay.max_lag replay.strict"
        yield queue, "replay.kind is random"
    if replay.samples_per_insert == 0.0:
        yield "replay.error_buffer", "replay.samples_per_insert is 0"
    if actors.step_processor != "her":
        yield "actors.her_goals", "actors.step_processor is not her"
    if not is_import_name(actors.step_processor):
        yield "actors.steps_per_row", "actors.step_processor is not one of your own"
    if env.is_vector_form:
        yield "env.stepping", f"env.vectorization is {env.vectorization}"
    if config.learner.snapshot is None:
        yield "learner.snapshot_interval_s learner.snapshot_share", "learner.snapshot is none"
    if not config.learner.eval_interval:
        played = "evaluation.end_timeout_s evaluation.confirm evaluation.trusted "
        yield f"{played}evaluation.episode_timeout_s", "learner.eval_interval is 0"
    else:
        if config.stop.target_return is None:
            yield "evaluation.confirm", "there is no stop.target_return that could be reached"
        if not config.evaluates_on_actors:
            yield "evaluation.trusted", "the learner plays the evaluations (evaluation.where)"


_EXPLORATION = {
    "epsilon_base": ("ladder",),
    "epsilon_alpha": ("ladder",),
    "epsilon_start": ("linear", "auto"),
    "epsilon_final": ("linear", "auto", "constant"),
    "epsilon_steps": ("linear", "auto"),
    "temperature": ("softmax",),
}
"""The kinds of exploration that use a setting; one of the user's own may use all."""


def _unused_by_schedule(key: str, schedule: ScheduleConfig) -> Unused:
    if schedule.kind == "constant":
        yield f"{key}.total_opts {key}.final", f"{key}.kind is constant"


def _without_versions(agent: AgentConfig) -> str:
    """Return why an agent explores alike on all versions of the model; "" where it does not, or is
    the user's own."""
    if is_import_name(agent.name):
        return ""
    if isinstance(agent, DqnConfig | IqnConfig) and agent.exploration.kind in _WITHOUT_VERSIONS:
        return f"agent.exploration.kind is {agent.exploration.kind}"
    if isinstance(agent, ActorCriticConfig) and not agent.uniform_warmup:
        return "agent.uniform_warmup is false"
    return "its policy is drawn from" if isinstance(agent, AppoConfig) else ""


_WITHOUT_VERSIONS = ("ladder", "constant", "softmax")
"""The kinds of exploration that are the same for all versions of the model."""


def _unused_by_agent(agent: AgentConfig, action: gym.Space[Any] | None) -> Unused:
    yield from _unused_by_schedule("agent.schedule", agent.schedule)
    if why := _without_versions(agent):
        yield "actors.explore_from", f"{why}: exploration is the same for all versions of the model"
    if isinstance(agent, MemoryConfig) and not agent.core_size:
        yield "agent.memory_size agent.memory_dtype", f"agent.memory is {agent.memory}"
    exploration = getattr(agent, "exploration", None)
    if isinstance(exploration, ExplorationConfig) and not is_import_name(exploration.kind):
        kind = exploration.kind
        keys = [
            f"agent.exploration.{key}" for key, used in _EXPLORATION.items() if kind not in used
        ]
        yield " ".join(keys), f"agent.exploration.kind is {kind}"
    imitation = getattr(agent, "imitation", None)
    if isinstance(imitation, ImitationConfig) and imitation.loss == "none":
        of_schedule = [f"agent.imitation.schedule.{key}" for key in ScheduleConfig.model_fields]
        yield " ".join(of_schedule), "agent.imitation.loss is none"
    elif isinstance(imitation, ImitationConfig):
        yield from _unused_by_schedule("agent.imitation.schedule", imitation.schedule)
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
    if isinstance(agent, NetworkConfig) and not agent.normalize_observations:
        yield "agent.normalizer_kl", "agent.normalize_observations is false"
    if getattr(agent, "alpha", "auto") != "auto":
        keys = ["agent.initial_alpha", "agent.target_entropy", "agent.alpha_learning_rate"]
        yield " ".join(keys), "agent.alpha is a number"
    if isinstance(agent, ActorCriticConfig) and not color_exponent(agent.noise_color):
        yield "agent.noise_steps", "agent.noise_color is white: no step's noise is kept"
    if getattr(agent, "exploration_noise", None) == 0.0:
        yield "agent.noise_color agent.noise_steps", "agent.exploration_noise is 0"
    if isinstance(agent, Td3Config) and not agent.target_noise:
        yield "agent.target_noise_clip", "agent.target_noise is 0"
    if isinstance(agent, AppoConfig):
        yield from _unused_by_schedule("agent.clip_schedule", agent.clip_schedule)
        if agent.correction == "none":
            yield "agent.rho_max agent.c_max", "agent.correction is none"
        if action is not None and not isinstance(action, gym.spaces.Box):
            deviation = "agent.initial_log_std agent.log_std_min agent.log_std_max"
            yield deviation, "the actions are discrete"
    if isinstance(agent, ActorCriticConfig) and agent.n_quantiles > 1:
        yield "agent.loss", "critics of several quantiles have their own loss"
    if isinstance(agent, SacConfig) and not agent.has_targets:
        why = f"is {agent.critic_architecture}, which does without target critics"
        yield "agent.tau agent.target_update_interval", f"agent.critic_architecture {why}"


def _unused_by_input(agent: NetworkConfig, observation: gym.Space[Any]) -> Unused:
    yield from _unused_by_network(agent, choose_input(agent, observation))
    if not float_parts(observation):
        why = "the observation has no part of floating-point numbers"
        yield "agent.normalize_observations agent.normalizer_kl", why


def _unused_by_network(agent: NetworkConfig, seen: NetworkInput) -> Unused:
    images = images_of(seen)
    own = isinstance(seen, CustomInput)
    of_parts = "agent.image_features agent.vector_features agent.shared_cnn"
    of_images = f"{of_parts} agent.convolutions agent.image_max agent.cnn_hidden_sizes"
    if not agent.core_size:  # a core is shared, whatever it is behind
        of_images += " agent.shared_encoder"
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
