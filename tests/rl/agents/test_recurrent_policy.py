"""Policies with memory: what an environment remembers, and what of it is stored."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.policy import KIND
from vedette_rl.agents.recurrent_policy import RecurrentPolicy
from vedette_rl.core import ColumnPolicy
from vedette_rl.core.protocols import implements
from vedette_rl.envs.spaces import Spaces
from vedette_rl.rollout import Chooser

SPACES = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4))
IMAGES = Spaces(gym.spaces.Box(0, 255, (12, 12, 1), np.uint8), gym.spaces.Discrete(4))
SIZE = 6


def config_of(**settings: Any) -> DqnConfig:
    return DqnConfig(memory="gru", memory_size=SIZE, hidden_sizes=(8,), **settings)


def policy_of(
    config: DqnConfig, spaces: Spaces = SPACES, environments: int = 20
) -> RecurrentPolicy:
    policy = KIND.build_policy(config, spaces, ranks=np.zeros(environments), seed=0)
    policy.sync_model(KIND.build_agent(config, spaces, device="cpu", seed=1).model_info())
    assert isinstance(policy, RecurrentPolicy)
    return policy


def observations(rows: int, seed: int, spaces: Spaces = SPACES) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    shape = (rows, *(spaces.observation.shape or ()))
    if spaces is IMAGES:
        return {"obs": rng.integers(0, 256, shape, np.uint8)}
    return {"obs": rng.uniform(-1, 1, shape).astype(np.float32)}


def memory_after(policy: RecurrentPolicy, rows: int) -> NDArray[Any]:
    """What the policy remembers now: the next call's column says it."""
    policy.act(observations(rows, 99), explore=False)
    return policy.acted_columns()["memory"]


def test_the_column_is_the_memory_before_the_observation() -> None:
    policy = policy_of(config_of(), environments=4)
    (declared,) = KIND.columns(config_of(), SPACES)
    assert (declared.name, declared.shape, declared.first) == ("memory", (SIZE,), True)
    assert implements(policy, ColumnPolicy)
    policy.act(observations(4, 0), explore=True, begins=np.ones(4, np.bool_))
    first = policy.acted_columns()["memory"]
    assert first.shape == (4, SIZE)
    assert first.dtype == np.float32
    assert not first.any(), "an episode begins with nothing remembered"
    policy.act(observations(4, 1), explore=True, begins=np.zeros(4, np.bool_))
    assert policy.acted_columns()["memory"].all()
    assert not first.any(), "what was handed out stays"


@pytest.mark.parametrize("explore", [True, False])
def test_actions_that_were_not_executed_leave_nothing_in_the_memory(explore: bool) -> None:
    """A loop of one's own may ask again, where the first actions were not executed."""
    once, twice = policy_of(config_of(), environments=4), policy_of(config_of(), environments=4)
    choosers = Chooser(once), Chooser(twice)
    for step in range(4):
        obs, begins = observations(4, step), np.full(4, step == 0)
        for chooser, count in zip(choosers, (1, 1 + step % 3), strict=True):
            for _ in range(count):
                chooser.choose(obs, explore=explore, begins=begins)
            chooser.on_executed()
        before, same = (policy.acted_columns()["memory"] for policy in (once, twice))
        np.testing.assert_array_equal(same, before)
    np.testing.assert_array_equal(memory_after(twice, 4), memory_after(once, 4))


def test_samples_may_hold_the_memory_in_half_the_room() -> None:
    (declared,) = KIND.columns(config_of(memory_dtype="float16"), SPACES)
    assert (declared.dtype, declared.shape, declared.first) == ("float16", (SIZE,), True)
    policy = policy_of(config_of(memory_dtype="float16"), environments=4)
    policy.act(observations(4, 0), explore=False)
    policy.act(observations(4, 1), explore=False)
    ours = policy.acted_columns()["memory"]
    assert ours.dtype == np.float32, "it acts on what is not rounded"
    plain = policy_of(config_of(), environments=4)
    plain.act(observations(4, 0), explore=False)
    plain.act(observations(4, 1), explore=False)
    np.testing.assert_array_equal(ours, plain.acted_columns()["memory"])


def test_an_episode_that_begins_forgets_the_one_before_and_others_go_on() -> None:
    policy = policy_of(config_of())
    policy.act(observations(3, 0), explore=False, begins=np.ones(3, np.bool_))
    policy.act(observations(3, 1), explore=False, begins=np.array([False, True, False]))
    used = policy.acted_columns()["memory"]
    assert not used[1].any()
    assert used[[0, 2]].all()
    fresh = policy_of(config_of())
    row = {"obs": observations(3, 1)["obs"][1:2]}
    fresh.act(row, explore=False, begins=np.ones(1, np.bool_))
    np.testing.assert_allclose(memory_after(policy, 3)[1], memory_after(fresh, 1)[0], atol=1e-6)


def test_environments_that_are_left_out_begin_when_they_are_back() -> None:
    policy = policy_of(config_of())
    policy.act(observations(20, 0), explore=False)
    policy.act(observations(18, 1), explore=False)
    action = policy.act(observations(20, 2), explore=False)
    used = policy.acted_columns()["memory"]
    assert action.shape == (20,)
    assert used[:18].all()
    assert not used[18:].any()


def test_environments_remember_each_for_itself() -> None:
    first, second = policy_of(config_of()), policy_of(config_of())
    order = np.array([2, 0, 1])
    for seed in range(3):
        obs = observations(3, seed)["obs"]
        first.act({"obs": obs}, explore=False)
        second.act({"obs": obs[order]}, explore=False)
    theirs = second.acted_columns()["memory"]
    np.testing.assert_allclose(theirs, first.acted_columns()["memory"][order], atol=1e-6)


def test_a_newer_model_goes_on_with_the_memory() -> None:
    policy = policy_of(config_of())
    policy.act(observations(2, 0), explore=False)
    other = KIND.build_agent(config_of(), SPACES, device="cpu", seed=7).model_info()
    policy.sync_model(other)
    policy.act(observations(2, 1), explore=False)
    assert policy.acted_columns()["memory"].all()


@pytest.mark.parametrize("explore", [True, False])
def test_images_act_in_torch_as_in_numpy(explore: bool) -> None:
    config = config_of(exploration={"kind": "constant", "epsilon_final": 0.0})
    in_torch = policy_of(config, IMAGES, environments=3)
    assert KIND.build_numpy_policy is not None
    in_numpy = KIND.build_numpy_policy(config, IMAGES, ranks=np.zeros(3), seed=0)
    in_numpy.sync_model(KIND.build_agent(config, IMAGES, device="cpu", seed=1).model_info())
    assert isinstance(in_numpy, RecurrentPolicy)
    for seed in range(5):
        obs = observations(3, seed, IMAGES)
        begins = np.array([seed == 0, seed == 3, seed == 0])
        actions = [p.act(obs, explore=explore, begins=begins) for p in (in_torch, in_numpy)]
        np.testing.assert_array_equal(*actions)
        ours, theirs = (p.acted_columns()["memory"] for p in (in_torch, in_numpy))
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_normalised_observations_are_remembered_as_such() -> None:
    config = config_of(normalize_observations=True)
    plain, normalised = policy_of(config_of()), policy_of(config)
    model = KIND.build_agent(config, SPACES, device="cpu", seed=1).model_info()
    arrays = {**model.arrays, "normalizer.mean": np.full(3, 0.5, np.float32)}
    normalised.sync_model(type(model)(model.version, arrays))
    obs = observations(2, 0)
    normalised.act(obs, explore=False)
    plain.act({"obs": obs["obs"] - np.float32(0.5)}, explore=False)
    ours, theirs = memory_after(normalised, 2), memory_after(plain, 2)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_without_memory_no_column_is_declared_or_filled() -> None:
    config = DqnConfig()
    assert not KIND.columns(config, SPACES)
    policy = KIND.build_policy(config, SPACES, ranks=np.zeros(1), seed=0)
    assert not implements(policy, ColumnPolicy)
