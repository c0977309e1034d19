"""Wrappers that need no permission: each is there, and none reaches outside."""

from __future__ import annotations

import importlib

import gymnasium as gym
import pytest

from vedette_rl.envs import known_wrappers
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.known_wrappers import is_known_wrapper
from vedette_rl.envs.make import make_env
from vedette_rl.errors import ImportNotAllowedError
from vedette_rl.import_by_name import MOVED_MODULES

NEEDS_JAX = {"JaxToNumpy"}


@pytest.mark.parametrize("name", sorted(known_wrappers._OF_GYMNASIUM - NEEDS_JAX))
def test_each_of_gymnasium_is_there(name: str) -> None:
    kind = getattr(gym.wrappers, name)
    assert issubclass(kind, gym.Wrapper)
    assert is_known_wrapper(f"gymnasium.wrappers:{name}")
    assert is_known_wrapper(f"{kind.__module__}:{name}")


@pytest.mark.parametrize("name", sorted(known_wrappers._OURS))
def test_each_of_ours_is_there(name: str) -> None:
    module, _, attribute = name.partition(":")
    kind = getattr(importlib.import_module(MOVED_MODULES.get(module, module)), attribute)
    assert issubclass(kind, gym.Wrapper)


@pytest.mark.parametrize(
    "name",
    [
        "gymnasium.wrappers:RecordVideo",
        "gymnasium.wrappers.rendering:RecordVideo",
        "gymnasium.wrappers:HumanRendering",
        "gymnasium.wrappers_of_others:ClipAction",
        "gymnasium:ClipAction",
        "my.gymnasium.wrappers:ClipAction",
        "vedette_rl.envs.make:_Copied",
        "vedette_rl.datasets.minari:EpisodeRecorder",
    ],
)
def test_others_need_permission(name: str) -> None:
    assert not is_known_wrapper(name)
    config = EnvConfig.model_validate({"id": "CartPole-v1", "wrappers": [name]})
    with pytest.raises(ImportNotAllowedError, match="--allow-import"):
        make_env(config, allow_import=lambda _: False)
