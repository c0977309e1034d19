"""Declared spaces: what may be written, what is made of it, and who is compared with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from starts import lines_of_start  # of tests/support

from vedette_rl.envs import EnvConfig, environment_spaces, make_env
from vedette_rl.envs.config import UNNAMED
from vedette_rl.envs.make import environment_action_space
from vedette_rl.envs.spaces import agent_spaces, check_declared
from vedette_rl.errors import DeclaredSpaceError, UnknownEnvironmentError
from vedette_services.config import RunConfig, load_config, read_config, write_config
from vedette_services.errors import ConfigError, SettingError
from vedette_services.net.addresses import Address
from vedette_services.net.keys import list_keys, make_keys
from vedette_services.run.trust import check_trust

BOX = {"space": "box", "shape": [4]}
TWO = {"space": "discrete", "n": 2}
DICT = {
    "space": "dict",
    "spaces": {
        "camera": {"space": "box", "shape": [3, 8, 8], "dtype": "uint8"},
        "speed": {"space": "box", "shape": [2], "low": [-1.0, -math.inf], "high": [1, 2.5]},
        "gear": {"space": "discrete", "n": 5, "start": 1},
    },
}
ARM = {"space": "box", "shape": [2], "low": -1, "high": [1.0, 2.0]}


def loaded(observation: Any = BOX, action: Any = TWO, **env: Any) -> RunConfig:
    table = {"env": {"observation": observation, "action": action, **env}}
    return load_config(table=table, environment={}).config


def declared(**spaces: Any) -> EnvConfig:
    return EnvConfig.model_validate({"id": "CartPole-v1", **spaces})


def test_spaces_are_gymnasiums() -> None:
    found = environment_spaces(loaded(DICT, ARM).env)
    assert found.observation == gym.spaces.Dict(
        {
            "camera": gym.spaces.Box(0, 255, (3, 8, 8), np.uint8),
            "speed": gym.spaces.Box(
                np.array([-1, -np.inf], np.float32), np.array([1, 2.5], np.float32)
            ),
            "gear": gym.spaces.Discrete(5, start=1),
        }
    )
    assert found.action == gym.spaces.Box(
        np.array([-1, -1], np.float32), np.array([1, 2], np.float32)
    )
    several = loaded(action={"space": "multi_discrete", "nvec": [2, 3]})
    assert environment_spaces(several.env).action == gym.spaces.MultiDiscrete([2, 3])


def test_the_agent_follows_the_declared_action_and_the_name_is_optional() -> None:
    assert (loaded().agent.name, loaded().env.id) == ("dqn", UNNAMED)
    assert loaded(action=ARM).agent.name == "sac"
    with pytest.raises(UnknownEnvironmentError, match="no environment is named"):
        make_env(loaded().env)


def test_a_stack_of_frames_is_known_as_one() -> None:
    images = {"space": "box", "shape": [4, 84, 84], "dtype": "uint8"}
    assert environment_spaces(loaded(images, frame_stack=4).env).stack == 4
    assert environment_spaces(loaded(images).env).stack == 0


def test_agents_count_actions_from_0_and_exported_policies_from_the_first() -> None:
    env = loaded(action={"space": "discrete", "n": 3, "start": 5}).env
    assert environment_spaces(env).action == gym.spaces.Discrete(3)
    assert environment_action_space(env) == gym.spaces.Discrete(3, start=5)


def test_a_configuration_with_spaces_is_read_as_it_was_written(tmp_path: Path) -> None:
    config = loaded(DICT, ARM)
    write_config(config, tmp_path / "config.toml")
    assert read_config(tmp_path / "config.toml") == config
    assert EnvConfig.model_validate_json(config.env.model_dump_json()) == config.env


@pytest.mark.parametrize(
    ("spaces", "said"),
    [
        ({"observation": {"space": "boxx"}}, "env.observation.space: must be 'box'"),
        ({"observation": {"space": "box"}}, "env.observation: box needs shape"),
        ({"observation": {"shape": [4]}}, "env.observation.space: is missing"),
        ({"observation": {**BOX, "n": 3}}, "env.observation: box takes shape, low, high, dtype"),
        ({"observation": {**BOX, "shap": 3}}, "did you mean env.observation.shape?"),
        ({"observation": {**BOX, "low": [1.0]}}, "low has 1 numbers, and a box of [4] has 4"),
        ({"observation": {**BOX, "low": 2, "high": 1}}, "low 2.0 is not below high 1.0"),
        ({"observation": {**BOX, "dtype": "uint8", "low": -1}}, "low -1.0 is no uint8"),
        ({"action": None}, "env.action is missing"),
        ({"action": {"space": "discrete", "n": 0}}, "env.action.n: must be more than 0"),
        ({"action": {"space": "dict", "spaces": {"a": TWO}}}, "an action is one array"),
    ],
)
def test_spaces_that_are_none_are_refused_in_a_line(spaces: dict[str, Any], said: str) -> None:
    table = {"observation": BOX, "action": TWO, **spaces}
    given = {"env": {key: value for key, value in table.items() if value is not None}}
    with pytest.raises(ConfigError) as refused:
        load_config(table=given, environment={})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("spaces", "part"),
    [
        ({"observation": {**BOX, "shape": [3]}}, "observation"),
        ({"observation": {**BOX, "dtype": "uint8"}}, "observation"),
        ({"action": {"space": "discrete", "n": 3}}, "action"),
        ({"action": {"space": "box", "shape": [1]}}, "action"),
    ],
)
def test_an_environment_with_other_spaces_is_refused(spaces: dict[str, Any], part: str) -> None:
    env = make_env(EnvConfig(id="CartPole-v1"))
    found = agent_spaces(env.observation_space, env.action_space)
    check_declared(declared(observation=BOX, action=TWO), found)
    with pytest.raises(DeclaredSpaceError, match=f"env.{part} declares"):
        check_declared(declared(**{"observation": BOX, "action": TWO, **spaces}), found)


def test_bounds_of_actions_are_compared_and_those_of_observations_are_not() -> None:
    env = make_env(EnvConfig(id="Pendulum-v1"))
    found = agent_spaces(env.observation_space, env.action_space)
    torque = {"space": "box", "shape": [1], "low": -2, "high": 2}
    seen = {"space": "box", "shape": [3]}  # Pendulum's own is bounded
    check_declared(declared(observation=seen, action=torque), found)
    with pytest.raises(DeclaredSpaceError, match=r"env.action declares Box\(-1.0, 1.0"):
        check_declared(declared(observation=seen, action=torque | {"low": -1, "high": 1}), found)


FAR = {"id": "no_such_module:Env"}


def test_a_learner_starts_without_the_environment_whose_spaces_are_declared(
    tmp_path: Path,
) -> None:
    config = loaded(**FAR)
    assert config.evaluates_on_actors
    assert any("replay:" in line for line in lines_of_start(config, tmp_path / "run"))


@pytest.mark.parametrize(
    ("evaluation", "in_process", "said"),
    [
        ({"where": "learner"}, False, "no module 'no_such_module'"),
        ({}, True, "no module 'no_such_module'"),
        ({"where": "actors"}, True, "one process evaluates by itself"),
    ],
)
def test_an_environment_that_is_played_here_is_needed_here(
    tmp_path: Path, evaluation: dict[str, str], in_process: bool, said: str
) -> None:
    table = {"env": {"observation": BOX, "action": TWO, **FAR}, "evaluation": evaluation}
    config = load_config(table=table, environment={}).config
    with pytest.raises(ConfigError, match=said):
        lines_of_start(config, tmp_path / "run", in_process=in_process)


# Whose evaluations count

HERE, ANYWHERE = Address("127.0.0.1", 5555), Address("0.0.0.0", 5555)


def trusting(*keys: str, **stop: Any) -> RunConfig:
    table = {
        "env": {"observation": BOX, "action": TWO},
        "evaluation": {"trusted": list(keys)},
        "stop": stop,
    }
    return load_config(table=table, environment={}).config


def test_the_start_says_whose_evaluations_count(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", ["gpu-2"])
    keys = tmp_path / "keys"
    own, (host,) = list_keys(keys)
    both = trusting(host.name, own.public.decode())
    assert "those of gpu-2, learner count" in check_trust(both, ANYWHERE, keys)[-1]
    assert "which all count" in check_trust(trusting(), HERE, None)[-1]
    assert "decide nothing" in check_trust(trusting(), ANYWHERE, keys)[-1]
    unknown, shown = check_trust(trusting("0" * 40), ANYWHERE, keys)
    assert f"no key {'0' * 40} is admitted" in unknown
    assert "decide nothing" in shown
    elsewhere = load_config(environment={}).config  # the learner evaluates
    assert check_trust(elsewhere, ANYWHERE, None) == ()


@pytest.mark.parametrize(
    ("config", "address", "keyed", "said"),
    [
        (trusting(), ANYWHERE, False, "without keys whoever reaches 0.0.0.0:5555"),
        (trusting("0" * 40), HERE, False, "the learner has none; start it with --keys DIR"),
        (trusting(target_return=1.0), HERE, True, "never reached without evaluation.trusted"),
    ],
)
def test_claims_that_nobody_could_check_are_refused_at_the_start(
    tmp_path: Path, config: RunConfig, address: Address, keyed: bool, said: str
) -> None:
    if keyed:
        make_keys(tmp_path / "keys", [])
    with pytest.raises(SettingError) as refused:
        check_trust(config, address, tmp_path / "keys" if keyed else None)
    assert said in str(refused.value)
