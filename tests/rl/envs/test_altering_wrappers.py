"""Wrappers by which evaluations do not measure what was learned are found wherever they are."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import ClipReward, NormalizeObservation, NormalizeReward, TransformReward
from gymnasium.wrappers import vector as of_vectors

from vedette_rl.envs import EnvConfig
from vedette_rl.envs.altering_wrappers import (
    AlteringWrapper,
    altering_wrappers,
    describe_altering,
    in_evaluations,
)
from vedette_rl.envs.description import EnvDescription, describe_environment
from vedette_rl.envs.make import make_env
from vedette_rl.envs.native_vector_env import SingleOfVector
from vedette_rl.testing.inputs import ScriptedEnv

NORMALIZES = AlteringWrapper("NormalizeReward", "statistics of rewards")


class Mine(NormalizeObservation[Any, Any, Any]):
    """One of somebody's own."""


def made() -> Any:
    """An environment whose author has wrapped it."""
    return NormalizeReward(Mine(ScriptedEnv()))


def config_of(
    *wrappers: str, env: str = f"{__name__}:made", training_only: bool = False
) -> EnvConfig:
    named: list[Any] = [
        {"name": f"gymnasium.wrappers:{name}", "training_only": training_only} for name in wrappers
    ]
    return EnvConfig.model_validate({"id": env, "wrappers": named})


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (ScriptedEnv, []),
        (made, [NORMALIZES, ("Mine", "observations")]),
        (lambda: ClipReward(ScriptedEnv(), -1.0, 1.0), [("ClipReward", "rewards")]),
        (lambda: TransformReward(ScriptedEnv(), np.sign), [("TransformReward", "rewards")]),
        (lambda: gym.wrappers.TimeLimit(made(), 9), [NORMALIZES, ("Mine", "observations")]),
        (
            lambda: SingleOfVector(
                of_vectors.NormalizeReward(gym.make_vec("CartPole-v1", 1))  # its own vector form
            ),
            [NORMALIZES],
        ),
    ],
)
def test_they_are_found_by_name_and_in_what_a_function_returns(env: Any, expected: Any) -> None:
    assert list(altering_wrappers(env())) == expected


def test_those_of_env_wrappers_are_found_and_told_to_another_process() -> None:
    found = describe_environment(make_env(config_of("NormalizeReward", env="CartPole-v1")))
    assert found.altering == (NORMALIZES,)
    assert EnvDescription.from_json(found.to_json()).altering == (NORMALIZES,)


def test_what_is_for_training_only_is_not_in_evaluations() -> None:
    config = config_of("NormalizeReward", training_only=True)
    found = altering_wrappers(make_env(config))
    assert found == (NORMALIZES, NORMALIZES, ("Mine", "observations"))  # its author's stays
    assert in_evaluations(found, config) == (NORMALIZES, ("Mine", "observations"))


def test_a_line_says_the_wrapper_and_the_way_out() -> None:
    lines = describe_altering(altering_wrappers(made()))
    assert len(lines) == 2
    assert lines[0].startswith("the wrapper NormalizeReward scales rewards by statistics")
    assert "env.reward_scale" in lines[0]
    assert "training_only = true" in lines[0]
    assert "the wrapper Mine" in lines[1]
    assert "agent.normalize_observations=true" in lines[1]
    assert describe_altering(altering_wrappers(ScriptedEnv())) == []
