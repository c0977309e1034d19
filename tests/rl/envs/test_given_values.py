"""An environment may change what it is given: settings, options and actions are its own copies."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.vector import AutoresetMode

from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import make_env
from vedette_rl.envs.native_vector_env import NativeVectorEnv, make_vector
from vedette_rl.errors import EnvironmentFaultError, UnknownEnvironmentError

HERE = __name__


class Taking(gym.Env[Any, Any]):
    """Takes its settings out of what it is given, as of a dictionary of options."""

    observation_space = gs.Box(-1.0, 1.0, (2,))
    action_space = gs.Box(-2.0, 2.0, (1,))

    def __init__(
        self, physics: dict[str, float] | None = None, max_episode_steps: int = 100
    ) -> None:
        self.gravity = (physics or {}).pop("gravity", 1.0)
        self.bound = max_episode_steps
        self.seen: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        path = (options or {}).get("path", [])
        self.seen.append(path.pop(0) if path else None)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), float(action[0]), False, False, {}


class Popping(gym.Wrapper[Any, Any, Any, Any]):
    """Takes its settings out of a dictionary, too."""

    def __init__(self, env: Any, gains: dict[str, float]) -> None:
        super().__init__(env)
        self.gain = gains.pop("gain", 0.0)


class Doubling(gym.ActionWrapper[Any, Any, Any]):
    """Has actions from -1 to 1, each played twice as large."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = gs.Box(-1.0, 1.0, (1,))

    def action(self, action: Any) -> Any:
        return 2.0 * action


class Overwriting(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector that writes into the actions it is given, and gives the flags of `kind`."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, kind: str = "bool") -> None:
        self.num_envs = num_envs
        self.single_observation_space = gs.Box(0.0, 1.0, (1,))
        self.single_action_space = gs.Discrete(3)
        self._kind = kind

    def _obs(self) -> Any:
        return np.zeros((self.num_envs, 1), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._obs(), {}

    def step(self, actions: Any) -> Any:
        actions[:] = 2
        flags = np.arange(self.num_envs) % 2 == 0
        given = {"column": flags[:, np.newaxis], "text": np.array(["no"] * self.num_envs)}
        terminated = given[self._kind] if self._kind in given else flags.astype(self._kind)
        truncated = np.zeros(self.num_envs, np.bool_)
        return self._obs(), np.ones(self.num_envs), terminated, truncated, {}


def test_each_constructor_wrapper_and_reset_has_settings_of_its_own() -> None:
    config = EnvConfig(
        id=f"{HERE}:Taking",
        kwargs={"physics": {"gravity": 9.8}},
        reset_options={"path": ["a", "b"]},
        wrappers=({"name": f"{HERE}:Popping", "kwargs": {"gains": {"gain": 3.0}}},),  # type: ignore[arg-type]
    )
    for _ in range(3):
        env = make_env(config)
        for _ in range(2):
            env.reset()
        assert env.unwrapped.gravity == 9.8  # type: ignore[attr-defined]
        assert env.unwrapped.seen == ["a", "a"]  # type: ignore[attr-defined]
        assert env.get_wrapper_attr("gain") == 3.0
    assert config.kwargs == {"physics": {"gravity": 9.8}}


def test_an_argument_that_the_constructor_has_is_given_to_it_whatever_its_name() -> None:
    env = make_env(EnvConfig(id=f"{HERE}:Taking", kwargs={"max_episode_steps": 500}))
    assert env.unwrapped.bound == 500  # type: ignore[attr-defined]
    assert env.spec is not None
    assert env.spec.max_episode_steps is None


@pytest.mark.parametrize(
    ("key", "setting"),
    [("max_episode_steps", "env.max_episode_steps"), ("num_envs", "actors.envs_per_actor")],
)
def test_an_argument_of_gymnasiums_is_refused_with_the_setting_to_use(
    key: str, setting: str
) -> None:
    with pytest.raises(
        UnknownEnvironmentError,
        match=rf"env\.kwargs\.{key} is not the constructor's; use {setting}",
    ):
        make_env(EnvConfig(id="CartPole-v1", kwargs={key: 3}))


def test_a_wrapper_for_training_only_leaves_the_spaces_as_they_are() -> None:
    wrapper = {"name": f"{HERE}:Doubling", "training_only": True}
    config = EnvConfig(id=f"{HERE}:Taking", wrappers=(wrapper,))  # type: ignore[arg-type]
    with pytest.raises(
        UnknownEnvironmentError, match=r"Doubling' is training_only and changes the action space"
    ):
        make_env(config)
    both = EnvConfig(id=f"{HERE}:Taking", wrappers=({**wrapper, "training_only": False},))  # type: ignore[arg-type]
    assert make_env(both).action_space == gs.Box(-1.0, 1.0, (1,))


def test_a_vector_that_overwrites_its_actions_changes_no_stored_one() -> None:
    envs = NativeVectorEnv(Overwriting(3), seed=1)
    envs.reset()
    chosen = np.array([0, 1, 0])
    step = envs.step(chosen)
    assert step.action.tolist() == [0, 1, 0]
    assert chosen.tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", ["bool", "uint8", "float32", "column"])
def test_flags_of_a_vector_may_be_numbers_or_a_column(kind: str) -> None:
    envs = NativeVectorEnv(Overwriting(3, kind), seed=1)
    envs.reset()
    step = envs.step(np.zeros(3, np.int64))
    assert step.terminated.tolist() == [True, False, True]
    assert step.terminated.dtype == np.bool_
    second = envs.step(np.zeros(3, np.int64))
    assert second.valid.tolist() == [False, True, False]
    assert second.terminated.tolist() == [False, False, False]


def test_flags_of_a_vector_that_are_no_bools_are_named() -> None:
    envs = NativeVectorEnv(Overwriting(3, "text"), seed=1)
    envs.reset()
    with pytest.raises(EnvironmentFaultError, match=r"terminated=.*not one bool for each of 3"):
        envs.step(np.zeros(3, np.int64))


@pytest.mark.parametrize(
    "asked", [{"frame_stack": 2}, {"reset_options": {"a": 1}}], ids=["stack", "options"]
)
def test_who_has_a_vector_only_is_not_sent_to_a_loop(asked: dict[str, Any]) -> None:
    config = EnvConfig(id=f"{HERE}:Overwriting", vectorization="vector_entry_point", **asked)
    with pytest.raises(UnknownEnvironmentError, match="do that in its class") as raised:
        make_vector(config, 2)
    assert "loop" not in str(raised.value)
