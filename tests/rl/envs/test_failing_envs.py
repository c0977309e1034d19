"""Environments that fail now and then: made again, one by one, unless they are broken."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.core import Columns
from vedette_rl.envs import EnvConfig, make_vector_environment
from vedette_rl.envs.failures import (
    MOST_FAILURES,
    MOST_UNPLAYED,
    PROGRESS_STEPS,
    EnvironmentFailure,
)
from vedette_rl.envs.spaces import transition_dtype
from vedette_rl.envs.vector_env import VectorEnvironment
from vedette_rl.evaluation import GreedyEvaluator
from vedette_rl.rollout import RolloutLoop
from vedette_rl.steps.n_step import NStep


class Counting(gym.Env[Any, Any]):
    """Shows which one of all that were made it is, and its step; `fails` names its bad moments.

    Args:
        length: of its episodes; 0: they do not end.
        fails: "made 3" at the third one's making, "reset 3" at the third reset of all, "step 3.5"
            at step 5 of the third one, "at 5" at step 5 of each, "always": at each reset.
    """

    observation_space = gym.spaces.Box(0, 1e6, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)
    made: ClassVar[int] = 0
    resets: ClassVar[int] = 0
    closed: ClassVar[list[int]] = []

    def __init__(self, length: int = 8, fails: tuple[str, ...] = ()) -> None:
        Counting.made += 1
        self.number = Counting.made
        self.length, self.fails = length, fails
        self.fail_if(f"made {self.number}")
        self.steps = 0

    def fail_if(self, moment: str) -> None:
        if moment in self.fails:
            raise RuntimeError(f"the solver did not converge: {moment}")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        Counting.resets += 1
        self.fail_if(f"reset {Counting.resets}")
        self.fail_if("always")
        self.steps = 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.fail_if(f"step {self.number}.{self.steps}")
        self.fail_if(f"at {self.steps}")
        return self.seen(), 1.0, self.steps == self.length, False, {}

    def seen(self) -> np.ndarray[Any, Any]:
        return np.array([self.number, self.steps], np.float64)

    def close(self) -> None:
        Counting.closed.append(self.number)


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    Counting.made = Counting.resets = 0
    Counting.closed = []


def made(count: int, *fails: str, stepping: str = "serial", length: int = 8) -> VectorEnvironment:
    kwargs = {"length": length, "fails": [*fails]}
    env = {"id": f"{__name__}:Counting", "kwargs": kwargs, "stepping": stepping}
    return make_vector_environment(EnvConfig.model_validate(env), count, seed=3)


class Zeros:
    def sync_model(self, model: Any) -> None:
        """It has no model."""

    def act(self, obs: Columns, *, explore: bool, begins: Any = None) -> Any:
        return np.zeros(len(obs["obs"]), np.int64)


class NoModels:
    has_new = False

    def read(self) -> None:
        """There is none."""


@pytest.mark.parametrize("stepping", ["serial", "threads"])
def test_only_the_environment_that_fails_is_made_again_and_its_step_is_lost(stepping: str) -> None:
    envs = made(3, "step 2.5", stepping=stepping)
    told: list[EnvironmentFailure] = []
    envs.on_failure = told.append
    envs.reset()
    actions = np.zeros(3, np.int64)
    for _ in range(4):
        assert not envs.step(actions).begins.any()
    step = envs.step(actions)
    assert step.valid.tolist() == [True, False, True]
    assert step.begins.tolist() == [False, True, False]
    assert step.init_obs["obs"].tolist() == [[1, 5], [4, 0], [3, 5]]
    assert list(envs.lost) == [1]
    assert Counting.closed == [2]
    [failure] = told
    assert (failure.env, failure.count) == (1, 1)
    assert re.match(r"in environment 1 of 3: .*Counting", failure.error.__notes__[0])
    step = envs.step(actions)
    assert not envs.lost
    assert step.valid.all()
    assert step.next_obs["obs"].tolist() == [[1, 6], [4, 1], [3, 6]]
    for _ in range(2):
        step = envs.step(actions)
    assert step.terminated.tolist() == [True, False, True]
    assert envs.pop_finished_episodes() == [(8.0, 8), (8.0, 8)]
    envs.close()


def test_transitions_of_before_are_handed_over_and_none_reaches_across() -> None:
    envs = made(2, "step 2.5", length=0)
    processor = NStep(3, 0.9, 2, transition_dtype(envs.spaces))
    loop = RolloutLoop(envs, Zeros(), processor, NoModels(), 3)
    loop.begin()
    rows: list[Columns] = []
    for _ in range(12):
        step = loop.play()
        if envs.lost:
            rows.append(loop.flush())
        rows.append(loop.process(step))
    rows.append(loop.flush())
    assert loop.env_steps == 2 * 12 - 1
    seen = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    began, ended = seen["obs"], seen["next_obs"]
    np.testing.assert_array_equal(began[:, 0], ended[:, 0])  # of one environment each
    np.testing.assert_array_equal(ended[:, 1] - began[:, 1], seen["n_steps"])
    assert not (seen["terminated"] | seen["truncated"]).any()
    by_env = {int(n): sorted(began[began[:, 0] == n, 1].tolist()) for n in set(began[:, 0])}
    assert by_env == {1: [*range(12)], 2: [0, 1, 2, 3], 3: [*range(7)]}


@pytest.mark.parametrize("moment", ["reset 2", "made 3", "reset 3"])
def test_one_that_fails_when_it_is_reset_or_made_again_is_tried_again(moment: str) -> None:
    envs = made(2, "step 2.5", moment)
    envs.reset()
    for _ in range(9):
        step = envs.step(np.zeros(2, np.int64))
    assert step.valid.all()
    envs.close()


@pytest.mark.parametrize("stepping", ["serial", "threads"])
def test_one_that_never_plays_a_step_is_broken(stepping: str) -> None:
    envs = made(2, "always", stepping=stepping)
    with pytest.raises(RuntimeError, match="did not converge") as caught:
        envs.reset()
    assert f"{MOST_UNPLAYED} times in a row before a step was played" in caught.value.__notes__[-1]
    envs.close()


@pytest.mark.parametrize(("step", "lives"), [(1, MOST_UNPLAYED), (2, MOST_FAILURES)])
def test_the_step_in_which_one_fails_is_none_that_it_played(step: int, lives: int) -> None:
    envs = made(1, f"at {step}")
    envs.reset()
    for _ in range(step * lives - 1):
        envs.step(np.zeros(1, np.int64))
    with pytest.raises(RuntimeError, match=f"did not converge: at {step}"):
        envs.step(np.zeros(1, np.int64))
    assert Counting.made == lives


def test_one_that_never_ends_an_episode_is_broken() -> None:
    envs = made(1, "at 5")
    envs.reset()
    for _ in range(5 * MOST_FAILURES - 1):
        envs.step(np.zeros(1, np.int64))
    with pytest.raises(RuntimeError, match="did not converge") as caught:
        envs.step(np.zeros(1, np.int64))
    assert Counting.made == MOST_FAILURES
    assert f"it failed {MOST_FAILURES} times in a row" in caught.value.__notes__[-1]


class Twice(Counting):
    """Fails in the second episode of each that is made."""

    episodes = 0

    def step(self, action: Any) -> Any:
        found = super().step(action)
        self.episodes += found[2]
        if self.episodes and self.steps == 3:
            raise RuntimeError("in its second episode")
        return found


def test_one_that_fails_soon_again_and_again_is_broken_whatever_it_plays_between() -> None:
    envs = make_vector_environment(
        EnvConfig(id=f"{__name__}:Twice", kwargs={"length": 20}), 1, seed=0
    )
    envs.reset()
    for _ in range(23 * MOST_FAILURES - 1):
        envs.step(np.zeros(1, np.int64))
    with pytest.raises(RuntimeError, match="in its second episode") as caught:
        envs.step(np.zeros(1, np.int64))
    assert "times within 1,000 steps" in caught.value.__notes__[-1]


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [("Twice", {"length": 150}), ("Counting", {"fails": [f"at {PROGRESS_STEPS}"], "length": 0})],
)
def test_one_that_plays_an_episode_or_many_steps_between_may_fail_for_ever(
    name: str, kwargs: dict[str, Any]
) -> None:
    envs = make_vector_environment(EnvConfig(id=f"{__name__}:{name}", kwargs=kwargs), 1, seed=0)
    told: list[EnvironmentFailure] = []
    envs.on_failure = told.append
    envs.reset()
    while len(told) <= MOST_FAILURES:
        envs.step(np.zeros(1, np.int64))
    assert told[-1].count == MOST_FAILURES + 1


class Shapeless(Counting):
    """Its observations are none of its space from the first step on."""

    def seen(self) -> np.ndarray[Any, Any]:
        return np.zeros(3 if self.steps else 2)


def test_what_none_of_its_space_is_comes_out_at_once() -> None:
    """It would be so again."""
    envs = make_vector_environment(EnvConfig(id=f"{__name__}:Shapeless"), 2, seed=0)
    envs.reset()
    made_before = Counting.made
    with pytest.raises(Exception, match="shape"):
        envs.step(np.zeros(2, np.int64))
    assert Counting.made == made_before


@pytest.mark.parametrize("stepping", ["serial", "threads"])
def test_an_evaluation_begins_the_episode_again_of_one_that_fails(stepping: str) -> None:
    kwargs = {"fails": ["step 2.5", "step 3.8", "reset 6"]}
    env = {"id": f"{__name__}:Counting", "kwargs": kwargs, "stepping": stepping}
    told: list[EnvironmentFailure] = []
    evaluator = GreedyEvaluator(
        EnvConfig.model_validate(env), 7, seed=3, side_by_side=3, on_failure=told.append
    )
    found = evaluator.evaluate(Zeros(), 1)
    evaluator.close()
    assert len(told) == 3
    assert found.returns == (8.0,) * 7
    assert found.lengths == (8,) * 7
    assert found.cut == 0


def test_an_evaluation_whose_environment_is_broken_raises_its_error() -> None:
    kwargs: dict[str, Any] = {"fails": ["at 5"]}
    evaluator = GreedyEvaluator(EnvConfig(id=f"{__name__}:Counting", kwargs=kwargs), 3, seed=3)
    with pytest.raises(RuntimeError, match="did not converge: at 5"):
        evaluator.evaluate(Zeros(), 1)
