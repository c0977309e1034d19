"""Evaluations: the same episodes every time, however many are played at once."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.core import Columns, ModelInfo
from vedette_rl.envs import EnvConfig
from vedette_rl.envs.config import WrapperConfig
from vedette_rl.errors import EnvironmentFaultError, EvaluationCancelledError
from vedette_rl.evaluation import GreedyEvaluator

CARTPOLE = EnvConfig(id="CartPole-v1")


class Leaning:
    """Pushes where the pole leans, and remembers how it was asked."""

    def __init__(self) -> None:
        self.widths: list[int] = []

    def sync_model(self, model: ModelInfo) -> None:
        """It has no model."""

    def act(self, obs: Columns, *, explore: bool) -> Any:
        assert not explore
        self.widths.append(len(obs["obs"]))
        return (obs["obs"][:, 2] > 0).astype(np.int64)


def test_the_result_does_not_depend_on_how_many_play_side_by_side() -> None:
    alone = GreedyEvaluator(CARTPOLE, 7, seed=5, side_by_side=1).evaluate(Leaning(), 3)
    for width in (2, 7, 20):
        evaluator = GreedyEvaluator(CARTPOLE, 7, seed=5, side_by_side=width)
        assert evaluator.evaluate(Leaning(), 3) == alone
        evaluator.close()
    assert alone.version == 3
    assert alone.seed == 5
    assert len(set(alone.lengths)) > 1


def test_every_evaluation_plays_the_same_episodes() -> None:
    evaluator = GreedyEvaluator(CARTPOLE, 5, seed=0, side_by_side=3)
    assert evaluator.evaluate(Leaning(), 1).returns == evaluator.evaluate(Leaning(), 2).returns
    evaluator.close()
    evaluator.close()


class Counted(gym.Wrapper[Any, Any, Any, Any]):
    steps = 0

    def step(self, action: Any) -> Any:
        Counted.steps += 1
        return self.env.step(action)


def test_no_step_is_played_for_nothing() -> None:
    wrapped = EnvConfig(id="CartPole-v1", wrappers=(WrapperConfig(name=f"{__name__}:Counted"),))
    Counted.steps = 0
    policy = Leaning()
    result = GreedyEvaluator(wrapped, 6, seed=1, side_by_side=4).evaluate(policy, 0)
    assert Counted.steps == sum(result.lengths)
    assert policy.widths == sorted(policy.widths, reverse=True)


class Counting(Leaning):
    """Counts the steps of each row's episode, which the environment shows."""

    count = np.zeros(0, np.int64)

    def act(self, obs: Columns, *, explore: bool, begins: Any = None) -> Any:
        self.count = self.count[: len(begins)] + 1 if len(self.count) else np.zeros(len(begins))
        self.count[begins] = 0
        np.testing.assert_array_equal(obs["obs"][:, 2][self.count > 0], self.count[self.count > 0])
        assert (self.count[obs["obs"][:, 2] == 0] == 0).all()
        return np.zeros(len(begins), np.int64)


def test_a_policy_with_memory_finds_every_environment_in_its_row() -> None:
    config = EnvConfig(id="vedette_rl.testing.inputs:ScriptedEnv")
    result = GreedyEvaluator(config, 23, seed=0, side_by_side=4).evaluate(Counting(), 0)
    assert set(result.lengths) == {1, 3, 4}


def test_an_endless_episode_is_left() -> None:
    config = EnvConfig(id="Pendulum-v1", max_episode_steps=10_000)

    class Still(Leaning):
        def act(self, obs: Columns, *, explore: bool) -> Any:
            return np.zeros((len(obs["obs"]), 1), np.float32)

    result = GreedyEvaluator(config, 2, seed=0, max_episode_steps=50).evaluate(Still(), 0)
    assert result.lengths == (50, 50)
    assert (result.cut, result.max_episode_steps) == (2, 50)


class Endless(gym.Env[Any, Any]):
    """Ends no episode before step 1,500 of those with an odd seed."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, **own: int) -> None:
        for name, value in own.items():
            setattr(self, name, value)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.odd = bool(seed and seed % 2)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.odd and self.steps == 1500, False, {}


class First(Leaning):
    def act(self, obs: Columns, *, explore: bool) -> Any:
        return np.zeros(len(obs["obs"]), np.int64)


@pytest.mark.parametrize(
    ("own", "limit", "given", "lengths", "cut"),
    [
        ({}, None, None, (1000, 1000), 2),
        ({"max_steps": 2000}, None, None, (2000, 1500), 1),
        ({"max_steps": 5}, None, None, (1000, 1000), 2),
        ({}, 30, None, (30, 30), 0),  # the environment ends them itself
        ({}, 30, 20, (20, 20), 2),
        ({}, None, 1500, (1500, 1500), 1),
    ],
)
def test_an_episode_is_cut_at_the_environments_own_limit_or_at_1000_steps(
    own: dict[str, Any], limit: int | None, given: int | None, lengths: Any, cut: int
) -> None:
    config = EnvConfig(id=f"{__name__}:Endless", kwargs=own, max_episode_steps=limit)
    evaluator = GreedyEvaluator(config, 2, seed=0, max_episode_steps=given)
    found = evaluator.evaluate(First(), 0)
    evaluator.close()
    assert (found.lengths, found.cut) == (lengths, cut)
    assert sum(found.returns) == sum(lengths)


def test_an_evaluation_can_be_given_up_between_two_steps() -> None:
    policy = Leaning()
    evaluator = GreedyEvaluator(CARTPOLE, 3, seed=0, side_by_side=2)
    whole = evaluator.evaluate(policy, 4)
    last = len(policy.widths) - 1
    for stop_after, ended in ((0, 0), (1, 0), (last, 2)):
        policy.widths.clear()
        with pytest.raises(EvaluationCancelledError, match=f"version 4 is given up: {ended} of 3"):
            evaluator.evaluate(
                policy, 4, is_cancelled=lambda after=stop_after: len(policy.widths) == after
            )
        assert len(policy.widths) == stop_after
    assert evaluator.evaluate(policy, 4) == whole
    evaluator.close()


class OneBadReward(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = self.env.step(action)
        return obs, float("nan") if terminated else 1.0, terminated, truncated, info


def test_rewards_that_are_not_finite_make_no_evaluation() -> None:
    wrapped = EnvConfig(
        id="CartPole-v1", wrappers=(WrapperConfig(name=f"{__name__}:OneBadReward"),)
    )
    with pytest.raises(EnvironmentFaultError, match=r"CartPole-v1: an episode's rewards .* nan"):
        GreedyEvaluator(wrapped, 2, seed=0).evaluate(Leaning(), 0)


class OneBadSight(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        obs, *outcome = self.env.step(action)
        return np.where([True, False, True, True], obs, np.float32(np.nan)), *outcome


def test_an_observation_that_is_not_finite_makes_no_evaluation() -> None:
    """The policy acted on it, and the return counted."""
    bad = WrapperConfig(name=f"{__name__}:OneBadSight")
    config = EnvConfig(id="CartPole-v1", wrappers=(bad,))
    with pytest.raises(EnvironmentFaultError, match=r"'obs'\[1\] is nan, which is not finite"):
        GreedyEvaluator(config, 3, seed=0).evaluate(Leaning(), 7)


def test_returns_are_the_true_rewards() -> None:
    config = EnvConfig(id="CartPole-v1", reward_scale=0.1, reward_clip=0.01)
    result = GreedyEvaluator(config, 2, seed=0).evaluate(Leaning(), 0)
    assert result.returns == tuple(float(length) for length in result.lengths)


def test_the_vector_form_is_evaluated_as_it_is_played() -> None:
    config = EnvConfig(id="CartPole-v1", vectorization="vector_entry_point")
    evaluator = GreedyEvaluator(config, 3, seed=0, side_by_side=2)
    assert evaluator.evaluate(Leaning(), 0) == evaluator.evaluate(Leaning(), 0)
    evaluator.close()


def test_an_evaluation_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one episode"):
        GreedyEvaluator(CARTPOLE, 0, seed=0)
