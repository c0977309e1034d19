"""EnvPool as the vector of an actor: with its API as a fake, and with itself where it is there."""

import sys
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.core import Columns
from vedette_rl.envs import EnvConfig, make_env, make_vector_environment, probe_environment
from vedette_rl.envs.native_vector_env import NativeVectorEnv
from vedette_rl.errors import UnknownEnvironmentError
from vedette_rl.evaluation import GreedyEvaluator

CARTPOLE = EnvConfig(id="CartPole-v1", vectorization="envpool")


class FakePool:
    """EnvPool 1.2's interface: spaces of one environment, a seed that only its making takes."""

    def __init__(self, task: str, num_envs: int, seed: int, **config: Any) -> None:
        assert task in ("CartPole-v1", "Pong-v5"), f"{task} is not supported"
        steps = config.pop("max_episode_steps", 500)
        if config.keys() - {"num_threads"}:
            raise TypeError("unexpected keyword argument")
        makers = [lambda: gym.make("CartPole-v1", max_episode_steps=steps)] * num_envs
        self._envs = gym.vector.SyncVectorEnv(makers)
        self._seed = seed
        self.config = {"num_envs": num_envs, "max_episode_steps": steps}
        self.metadata = {"render_modes": ["rgb_array"]}
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space

    def reset(self, *, seed: None = None, options: Any = None) -> Any:
        assert seed is None
        assert options is None
        own, self._seed = self._seed, None  # type: ignore[assignment]  # once
        return self._envs.reset(seed=own)

    def step(self, actions: Any) -> Any:
        return self._envs.step(actions)

    def close(self) -> None:
        self._envs.close()


@pytest.fixture(params=["fake", "real"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "real":
        pytest.importorskip("envpool")
    else:
        monkeypatch.setitem(sys.modules, "envpool", SimpleNamespace(make_gymnasium=FakePool))
    return str(request.param)


class Leaning:
    def sync_model(self, model: Any) -> None:
        """It has no model."""

    def act(self, obs: Columns, *, explore: bool) -> Any:
        return (obs["obs"][:, 2] > 0).astype(np.int64)


@pytest.mark.usefixtures("pool")
def test_a_pool_is_played_without_its_reset_steps_and_the_same_by_the_same_seed() -> None:
    def played(seed: int) -> tuple[list[Any], list[tuple[float, int]], int]:
        row = make_vector_environment(CARTPOLE, 4, seed)
        assert isinstance(row, NativeVectorEnv)
        seen = [row.reset()["obs"].copy()]
        valid = 0
        for _ in range(60):
            step = row.step(np.zeros(4, np.int64))
            seen.append(step.next_obs["obs"].copy())
            valid += int(step.valid.sum())
        ended = row.pop_finished_episodes()
        row.close()
        return seen, ended, valid

    first, ended, valid = played(3)
    assert len(ended) >= 20
    assert all(length == total and 7 < length < 13 for total, length in ended)
    assert 240 - valid in (len(ended), *(len(ended) - late for late in range(1, 5)))
    again, _, _ = played(3)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], played(4)[0][0])


@pytest.mark.usefixtures("pool")
def test_evaluations_play_a_pool_of_one_for_each_episode() -> None:
    found = [GreedyEvaluator(CARTPOLE, 5, 7, side_by_side=n).evaluate(Leaning(), 0) for n in (1, 3)]
    assert found[0] == found[1]
    assert found[0].max_episode_steps == 500
    assert len(set(found[0].lengths)) > 1
    short = CARTPOLE.model_copy(update={"max_episode_steps": 5})
    assert GreedyEvaluator(short, 2, 0).evaluate(Leaning(), 0).lengths == (5, 5)
    assert probe_environment(CARTPOLE).action == gym.spaces.Discrete(2)


@pytest.mark.usefixtures("pool")
def test_what_a_pool_cannot_be_made_of_is_told() -> None:
    for update, said in (
        ({"id": "Nope-v0"}, "EnvPool cannot make it: Nope-v0 is not supported"),
        ({"kwargs": {"foo": 1}}, "EnvPool cannot make it: .*unexpected keyword argument"),
        ({"frame_stack": 4}, "takes no env.wrappers or env.frame_stack"),
    ):
        with pytest.raises(UnknownEnvironmentError, match=said):
            make_env(CARTPOLE.model_copy(update=update))


def test_an_environment_is_refused_where_envpool_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(UnknownEnvironmentError, match="pip install envpool"):
        make_env(CARTPOLE)


def test_ale_names_are_envpools_without_their_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(task: str, **how: Any) -> FakePool:
        made.append(task)
        return FakePool(task, **how)

    monkeypatch.setitem(sys.modules, "envpool", SimpleNamespace(make_gymnasium=make))
    config = EnvConfig(id="ALE/Pong-v5", vectorization="envpool")
    make_env(config).close()
    assert made == ["Pong-v5"]
    assert config.stack == 4
