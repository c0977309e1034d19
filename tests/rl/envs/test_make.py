"""Environments by name: what is made, and what is said when it is not."""

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import SyncVectorEnv
from pydantic import ValidationError

from vedette_rl.envs import (
    EnvConfig,
    Spaces,
    action_bounds,
    column_bounds,
    make_env,
    make_vector_environment,
    probe_environment,
    registry,
    transition_dtype,
)
from vedette_rl.envs.registry import step_limit
from vedette_rl.envs.spaces import agent_spaces
from vedette_rl.errors import (
    EnvironmentFaultError,
    ImportNotAllowedError,
    SpaceLayoutError,
    UnknownEnvironmentError,
)
from vedette_rl.testing.inputs import ScriptedEnv

MODULE = """
import gymnasium as gym
from vedette_rl.testing.inputs import ScriptedEnv
gym.register("Mine-v0", entry_point=ScriptedEnv)
gym.register("Namespaced/Mine-v5", entry_point=ScriptedEnv)
"""


@pytest.fixture
def my_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_vedette_envs.py").write_text(MODULE)
    (tmp_path / "half_vedette_envs.py").write_text("import not_there_at_all")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "my_vedette_envs"
    sys.modules.pop("my_vedette_envs", None)
    for name in ("Mine-v0", "Namespaced/Mine-v5"):
        gym.registry.pop(name, None)


def test_a_name_with_a_module_imports_it(my_module: str) -> None:
    spaces = probe_environment(EnvConfig(id=f"{my_module}:Mine-v0", kwargs={"kind": "dict"}))
    assert "obs/where/episode" in (transition_dtype(spaces).names or ())


def test_a_module_is_not_imported_where_it_is_not_allowed(my_module: str) -> None:
    config = EnvConfig(id=f"{my_module}:Mine-v0")
    with pytest.raises(ImportNotAllowedError, match=f"--allow-import {my_module}"):
        make_env(config, allow_import=lambda module: module.startswith("other"))
    assert my_module not in sys.modules
    make_vector_environment(config, 1, 0, allow_import=lambda module: module == my_module).close()


def test_a_wrappers_module_is_asked_for_too(my_module: str) -> None:
    config = EnvConfig(id="CartPole-v1", wrappers=(f"{my_module}:Wrap",))
    with pytest.raises(ImportNotAllowedError):
        make_env(config, allow_import=lambda _: False)


def test_gymnasiums_own_wrappers_may_always_be_named() -> None:
    stack = {"name": "gymnasium.wrappers:FrameStackObservation", "kwargs": {"stack_size": 3}}
    config = EnvConfig(id="CartPole-v1", wrappers=(stack,))
    env = make_env(config, allow_import=lambda _: False)
    assert env.observation_space.shape == (3, 4)


@pytest.mark.parametrize(
    ("env_id", "sentence"),
    [
        ("CartPole-v7", "nearest: CartPole-v1"),
        ("cartpole-v1", "nearest: CartPole-v1"),
        ("NoSuchThing-v9", "module:MyEnv, its class, or module:Name-v0"),
        ("no_such_module_at_all.envs:X-v0", "there is no module 'no_such_module_at_all'"),
        ("half_vedette_envs:X-v0", "needs 'not_there_at_all', which is not installed"),
        ("GymV21Environment-v0", "cannot make environment"),
    ],
)
def test_what_cannot_be_made_is_said_in_one_line(
    my_module: str, env_id: str, sentence: str
) -> None:
    with pytest.raises(UnknownEnvironmentError, match=sentence) as caught:
        make_env(EnvConfig(id=env_id))
    assert "\n" not in str(caught.value)


def test_a_name_without_its_namespace_is_told_the_whole_one(
    my_module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._REGISTERED_BY, "Namespaced", my_module)
    with pytest.raises(UnknownEnvironmentError, match=r"nearest: Namespaced/Mine-v5$"):
        make_env(EnvConfig(id="Mine-v7"))


def test_arguments_that_do_not_fit_are_said_in_one_line() -> None:
    with pytest.raises(
        UnknownEnvironmentError, match=r"takes no gravitty: leave env.kwargs.gravitty out"
    ):
        make_env(EnvConfig(id="Pendulum-v1", kwargs={"gravitty": 3}))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UnknownEnvironmentError, match=r"pip install 'vedette\[box2d\]'"):
        make_env(EnvConfig(id="LunarLander-v3"))


@pytest.mark.parametrize(
    "bad",
    [
        {"id": ""},
        {"id": "a:b:C-v0"},
        {"id": "not a module:C-v0"},
        {"id": "C-v0", "max_episode_steps": 0},
        {"id": "C-v0", "wrappers": ["NoModule"]},
        {"id": "C-v0", "vectorisation": "loop"},
        {"id": "C-v0", "reward_clip": -1},
        {"id": "C-v0", "reward_scale": 0},
    ],
)
def test_an_impossible_configuration_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        EnvConfig.model_validate(bad)


def test_a_configuration_survives_json() -> None:
    config = EnvConfig(id="a.b:C-v0", kwargs={"x": [1, {"y": None}]}, wrappers=("m:W",))
    assert EnvConfig.model_validate(config.model_dump(mode="json")) == config


def test_evaluation_leaves_out_what_only_training_wants() -> None:
    clip = {"name": "gymnasium.wrappers:ClipReward", "training_only": True}
    config = EnvConfig(id="C-v0", wrappers=("m:W", clip), reward_clip=1.0)
    assert [wrapper.name for wrapper in config.for_evaluation().wrappers] == ["m:W"]
    assert config.for_evaluation().reward_clip == 0.0


def test_acting_environments_carry_no_checking_wrappers() -> None:
    names = str(make_env(EnvConfig(id="CartPole-v1")))
    assert "Checker" not in names
    assert "OrderEnforcing" not in names
    assert "TimeLimit" in names
    assert "OrderEnforcing" in str(make_env(EnvConfig(id="CartPole-v1"), check=True))


def test_the_columns_of_cartpole() -> None:
    spaces = probe_environment(EnvConfig(id="CartPole-v1"))
    assert transition_dtype(spaces).names == (
        *("obs", "action", "reward", "next_obs", "terminated", "truncated", "n_steps"),
    )
    assert action_bounds(spaces) == {"action": (0, 1)}


def test_discrete_columns_have_bounds() -> None:
    gs = gym.spaces
    observation = gs.Dict({"a": gs.Discrete(5, start=2), "b": gs.Box(0, 1, (2,), np.float16)})
    spaces = agent_spaces(observation, gs.MultiDiscrete([3, 4]))
    bounds = column_bounds(spaces)
    assert bounds["obs/a"] == bounds["next_obs/a"] == (2, 6)
    assert bounds["action"] == (0, 3)
    assert "obs/b" not in bounds
    assert transition_dtype(spaces)["obs/b"].base == np.float16


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (gym.spaces.Text(5), gym.spaces.Discrete(2)),
        (gym.spaces.Discrete(2), gym.spaces.Dict({"a": gym.spaces.Discrete(2)})),
        (gym.spaces.Sequence(gym.spaces.Discrete(2)), gym.spaces.Discrete(2)),
        (gym.spaces.Dict({}), gym.spaces.Discrete(2)),
        (gym.spaces.Box(-1, 1, (0,)), gym.spaces.Discrete(2)),
        (gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2, 0))),
    ],
)
def test_spaces_without_columns_are_refused(
    observation: gym.Space[object], action: gym.Space[object]
) -> None:
    with pytest.raises(SpaceLayoutError):
        agent_spaces(observation, action)


def test_two_parts_of_one_name_are_refused() -> None:
    inner = gym.spaces.Dict({"b": gym.spaces.Discrete(2)})
    space = gym.spaces.Dict({"a": inner, "a/b": gym.spaces.Discrete(2)})
    with pytest.raises(SpaceLayoutError, match="'obs/a/b'"):
        transition_dtype(Spaces(space, gym.spaces.Discrete(2)))


def test_environments_load_no_torch() -> None:
    import subprocess

    code = "import sys, vedette_rl.envs, vedette_rl.steps; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_one_of_the_vector_form_plays_as_a_plain_environment() -> None:
    config = EnvConfig(id="CartPole-v1", vectorization="vector_entry_point", max_episode_steps=5)
    assert probe_environment(config).observation.shape == (4,)
    env = make_env(config)
    for _ in range(2):
        env.reset(seed=3)
        ends = [env.step(0)[2:4] for _ in range(5)]
        assert ends == [(False, False)] * 4 + [(False, True)]
    env.close()


class Clips(SyncVectorEnv):
    """A vector form that clips rewards where nobody says otherwise, as ALE's does."""

    def __init__(self, num_envs: int, reward_clipping: bool = True) -> None:
        super().__init__([ScriptedEnv] * num_envs)
        self._clips = reward_clipping

    def step(self, actions: Any) -> Any:
        obs, rewards, *rest = super().step(actions)
        return obs, (np.sign(rewards) if self._clips else rewards), *rest


@pytest.mark.parametrize(
    ("kwargs", "returned"), [({}, 6.0), ({"reward_clipping": True}, 3.0)], ids=str
)
def test_a_vector_form_clips_rewards_only_where_it_is_told_to(
    kwargs: dict[str, bool], returned: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = EnvSpec("Clips-v0", entry_point=ScriptedEnv, vector_entry_point=Clips)
    monkeypatch.setitem(gym.registry, "Clips-v0", spec)
    config = EnvConfig(id="Clips-v0", vectorization="vector_entry_point", kwargs=kwargs)
    row = make_vector_environment(config, 2, seed=0)
    row.reset()
    for _ in range(3):
        row.step(np.zeros(2, np.int64))
    assert row.pop_finished_episodes() == [(returned, 3)] * 2
    env = make_env(config.for_evaluation())
    env.reset(seed=0)
    assert sum(env.step(2)[1] for _ in range(3)) == returned


class Unsound(ScriptedEnv):
    """Gives what is not finite, at reset or as the first step's reward, or a flag that is none."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = super().reset(seed=seed, options=options)
        return (obs * np.nan if self._where == "obs" else obs), info

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        if self._where == "terminated":
            rest[0] = 2
        return obs, (1e300 if self._where == "reward" else reward), *rest


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium's checker says it, too
@pytest.mark.parametrize(
    ("where", "came_from"), [("obs", "reset"), ("reward", "step"), ("terminated", "step")]
)
def test_what_no_learner_takes_is_refused_before_a_start(where: str, came_from: str) -> None:
    if "Unsound-v0" not in gym.registry:
        gym.register("Unsound-v0", entry_point=Unsound)
    with pytest.raises(EnvironmentFaultError) as refused:
        probe_environment(EnvConfig(id="Unsound-v0", kwargs={"where": where}))
    said = str(refused.value)
    assert said.startswith("environment ")
    assert f": {came_from}() gave {where}" in said.replace("'", "")
    assert re.search(rf" \(Unsound\.{came_from}, test_make\.py:\d+\)$", said)
    assert "\n" not in said


class _Endless(gym.Env[Any, Any]):
    """Never ends an episode by itself."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, size: int) -> None:
        self.size = size


def make_endless(limit: int = 0) -> gym.Env[Any, Any]:
    """Make one, with a time limit if it is not 0."""
    return gym.wrappers.TimeLimit(_Endless(1), limit) if limit else _Endless(1)


@pytest.mark.parametrize(
    ("settings", "known"),
    [
        ({"id": "CartPole-v1"}, True),
        ({"id": f"{__name__}:make_endless"}, False),
        ({"id": f"{__name__}:make_endless", "kwargs": {"limit": 50}}, True),
        ({"id": f"{__name__}:make_endless", "max_episode_steps": 9}, True),
    ],
)
def test_a_time_limit_is_known_of_the_registry_the_configuration_and_a_wrapper(
    settings: dict[str, Any], known: bool
) -> None:
    env = make_env(EnvConfig.model_validate(settings))
    assert bool(step_limit(env)) is known
    env.close()


def test_an_argument_that_a_constructor_needs_is_named_with_its_setting() -> None:
    with pytest.raises(UnknownEnvironmentError, match=r"needs size: set env\.kwargs\.size=VALUE"):
        make_env(EnvConfig(id=f"{__name__}:_Endless"))


class OneArray(gym.Env[Any, Any]):
    """Writes every observation, the number of the step, into the same array."""

    observation_space = gym.spaces.Box(0.0, 99.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self._obs = np.zeros(2, np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._obs.fill(1.0)
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._obs += 1.0
        return self._obs, 0.0, bool(self._obs[0] >= 5.0), False, {}


@pytest.mark.parametrize(
    "stacked",
    [
        {"frame_stack": 3},
        {
            "wrappers": [
                {"name": "gymnasium.wrappers:FrameStackObservation", "kwargs": {"stack_size": 3}}
            ]
        },
    ],
)
def test_frames_are_stacked_rightly_of_an_environment_that_writes_into_one_array(
    stacked: dict[str, Any],
) -> None:
    config = EnvConfig.model_validate({"id": f"{__name__}:OneArray", **stacked})
    env = make_env(config)
    assert env.reset()[0][:, 0].tolist() == [1.0, 1.0, 1.0]
    found = [env.step(0)[0][:, 0].tolist() for _ in range(3)]
    assert found == [[1.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    envs = make_vector_environment(config, 1, 0)
    envs.reset()
    for _ in range(3):
        step = envs.step(np.zeros(1, np.int64))
    assert step.obs["obs"][0, :, 0].tolist() == [1.0, 2.0, 3.0]
    assert step.next_obs["obs"][0, :, 0].tolist() == [2.0, 3.0, 4.0]
    step = envs.step(np.zeros(1, np.int64))
    assert step.next_obs["obs"][0, :, 0].tolist() == [3.0, 4.0, 5.0]
    assert step.init_obs["obs"][0, :, 0].tolist() == [1.0, 1.0, 1.0]
