"""The length of the sequences of noise by which a run's actors explore."""

from __future__ import annotations

from vedette_rl.agents.action_noise import color_exponent
from vedette_rl.agents.config import NOISE_STEPS_MOST, ActorCriticConfig
from vedette_services.config.probing import EnvironmentProbe
from vedette_services.config.run_config import RunConfig


def choose_noise_steps(config: RunConfig, probe: EnvironmentProbe) -> RunConfig:
    """Have a sequence of coloured noise last an episode, unless its length is set.

    That is up to the environment's time limit, or where an evaluation would cut an episode if it
    has none. Of a declared environment, which is not made here, it is `env.max_episode_steps`.
    """
    agent = config.agent
    if not isinstance(agent, ActorCriticConfig) or not color_exponent(agent.noise_color):
        return config
    if agent.noise_steps is not None:
        return config
    if config.env.is_declared:
        bound = config.env.max_episode_steps
    else:
        bound = probe.facts(config.env).episode_bound
    if bound is None:
        return config
    agent = agent.model_copy(update={"noise_steps": min(bound, NOISE_STEPS_MOST)})
    return config.model_copy(update={"agent": agent})
