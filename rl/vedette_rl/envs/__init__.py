"""Environments: by name, several as one row, with their spaces as columns. No torch."""

from vedette_rl.envs.config import EnvConfig, WrapperConfig
from vedette_rl.envs.make import make_env, probe
from vedette_rl.envs.spaces import Spaces, action_bounds, column_bounds, transition_dtype
from vedette_rl.envs.vector_env import EnvRow, make_row

__all__ = [
    "EnvConfig",
    "EnvRow",
    "Spaces",
    "WrapperConfig",
    "action_bounds",
    "column_bounds",
    "make_env",
    "make_row",
    "probe",
    "transition_dtype",
]
