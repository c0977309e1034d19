"""Environments: by name, several as one vector, with their spaces as columns. No torch."""

from vedette_rl.envs.config import EnvConfig, SpaceConfig, WrapperConfig
from vedette_rl.envs.make import (
    environment_spaces,
    make_env,
    make_vector_environment,
    probe_environment,
)
from vedette_rl.envs.spaces import Spaces, action_bounds, column_bounds, transition_dtype
from vedette_rl.envs.vector_env import VectorEnvironment

__all__ = [
    "EnvConfig",
    "SpaceConfig",
    "Spaces",
    "VectorEnvironment",
    "WrapperConfig",
    "action_bounds",
    "column_bounds",
    "environment_spaces",
    "make_env",
    "make_vector_environment",
    "probe_environment",
    "transition_dtype",
]
