"""Which observations are stacks of frames: the newest last, each step one frame further."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import FrameStackObservation

from vedette_rl.envs.config import EnvConfig


def count_stacked_frames(env: gym.Env[Any, Any], config: EnvConfig) -> int:
    """How many frames an observation of `env` is a stack of; 0: it is none that we know of.

    Gymnasium's `FrameStackObservation` is found wherever it is, and ALE's vector form stacks, too.
    """
    space = env.observation_space
    if not isinstance(space, gym.spaces.Box) or len(space.shape) < 2:
        return 0
    frames = space.shape[0]
    if frames > 1 and frames in (_wrapped_stack(env), config.stack):
        return frames
    return 0


def _wrapped_stack(env: gym.Env[Any, Any]) -> int:
    while isinstance(env, gym.Wrapper):
        if isinstance(env, FrameStackObservation):
            return env.stack_size
        env = env.env
    return 0
