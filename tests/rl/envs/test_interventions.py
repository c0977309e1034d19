"""Steps in which a person acts: the executed action is stored, and marked where that is wanted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.core import Step
from vedette_rl.core.columns import INTERVENED
from vedette_rl.envs import EnvConfig
from vedette_rl.envs.layout import ActionConverter, find_intervention
from vedette_rl.envs.make import make_vector_environment
from vedette_rl.envs.native_vector_env import NativeVectorEnv
from vedette_rl.envs.pushed_envs import PushedEnvs
from vedette_rl.errors import EnvironmentFaultError
from vedette_services.errors import EnvironmentProcessError
from vedette_services.host.env_workers import ProcessEnvs


class TakenOver(gym.Env[Any, Any]):
    """A person takes every third step, with an action by its number; the observation is what was
    done."""

    def __init__(self, convention: str = "hil-serl", discrete: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-9.0, 99.0, (2,), np.float32)
        self.action_space: gym.Space[Any] = gym.spaces.Box(-9.0, 99.0, (2,), np.float32)
        if discrete:
            self.action_space = gym.spaces.Discrete(90, start=10)
        self._convention = convention
        self._discrete = discrete
        self._t = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {"is_intervention": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        taken = self._t % 3 == 0
        if taken:
            action = 10 + self._t if self._discrete else np.full(2, self._t, np.float32)
        info: dict[str, Any] = {"other": 1}
        if self._convention == "hil-serl":
            info |= {"intervene_action": action} if taken else {}
        else:
            info |= {"is_intervention": taken, "action_intervention": action}
        seen = np.broadcast_to(np.asarray(action, np.float32), (2,)).copy()
        return seen, 0.0, self._t % 7 == 0, False, info


class Reports(gym.Env[Any, Any]):
    """Says always what it has executed."""

    def __init__(self, low: float) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Box(low, low + 1.0, (1,), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, False, False, {"intervene_action": action}


def rescaled(low: float) -> gym.Env[Any, Any]:
    return gym.wrappers.RescaleAction(Reports(low), np.float32(-1.0), np.float32(1.0))


gym.register("TakenOver-v0", entry_point=TakenOver)
HERE = f"{__name__}:TakenOver-v0"


def steps_of(stepping: str, **kwargs: Any) -> list[Step]:
    config = EnvConfig(id=HERE, kwargs=kwargs, stepping=stepping)
    envs = make_vector_environment(config, 2, 0, make_processes=ProcessEnvs)
    envs.marks_interventions = True
    envs.reset()
    shape = () if kwargs.get("discrete") else (2,)
    found = []
    for _ in range(9):
        step = envs.step(np.full((2, *shape), 5))
        extra = {name: column.copy() for name, column in step.extra.items()}
        next_obs = {"obs": step.next_obs["obs"].copy()}
        found.append(replace(step, action=step.action.copy(), next_obs=next_obs, extra=extra))
    envs.close()
    return found


@pytest.mark.parametrize("convention", ["hil-serl", "lerobot"])
@pytest.mark.parametrize("stepping", ["serial", "threads"])
def test_the_executed_action_is_stored_and_marked(stepping: str, convention: str) -> None:
    for t, step in enumerate(steps_of(stepping, convention=convention), 1):
        np.testing.assert_array_equal(step.action, np.full((2, 2), t if t % 3 == 0 else 5))
        np.testing.assert_array_equal(step.next_obs["obs"], step.action)
        assert step.extra[INTERVENED].tolist() == [t % 3 == 0] * 2


def test_a_discrete_action_counts_from_0() -> None:
    for t, step in enumerate(steps_of("serial", discrete=True), 1):
        assert step.action.tolist() == [t if t % 3 == 0 else 5] * 2


@pytest.mark.slow
def test_processes_tell_what_was_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    for t, step in enumerate(steps_of("processes"), 1):
        np.testing.assert_array_equal(step.action, np.full((2, 2), t if t % 3 == 0 else 5))
        assert step.extra[INTERVENED].tolist() == [t % 3 == 0] * 2


def test_a_vector_tells_what_was_executed_where_its_masks_say_so() -> None:
    made = gym.vector.SyncVectorEnv([lambda: TakenOver("lerobot"), lambda: TakenOver()])
    envs = NativeVectorEnv(made, seed=0)
    envs.marks_interventions = True
    envs.reset()
    for t in range(1, 7):
        step = envs.step(np.full((2, 2), 5.0))
        np.testing.assert_array_equal(step.action, np.full((2, 2), t if t % 3 == 0 else 5))
        assert step.extra[INTERVENED].tolist() == [t % 3 == 0] * 2


def test_a_run_that_notes_probabilities_refuses_anothers_action_and_takes_its_own() -> None:
    envs = make_vector_environment(EnvConfig(id=HERE), 1, 0)
    envs.refuses_interventions = True
    envs.reset()
    for _ in range(2):
        envs.step(np.full((1, 2), 5.0))
    with pytest.raises(EnvironmentFaultError, match=r"action \[3. 3.\]: not the policy's own"):
        envs.step(np.full((1, 2), 5.0))
    envs.step(np.full((1, 2), 5.0))
    envs.step(np.full((1, 2), 5.0))
    envs.step(np.full((1, 2), 6.0))  # the person's is 6, too
    envs.close()


@pytest.mark.parametrize("low", [0.0, 300.0, 1000.0, -1.0])
def test_ones_own_action_is_known_behind_a_wrapper_that_rounds(low: float) -> None:
    """It comes back through float32 numbers of bounds that are narrow, and far from 0."""
    config = EnvConfig(id=f"{__name__}:rescaled", kwargs={"low": low})
    envs = make_vector_environment(config, 1, 0)
    envs.refuses_interventions = True
    envs.reset()
    drawn = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 1, 1)).astype(np.float32)
    for action in drawn:
        envs.step(action)
    envs.close()


def test_numbers_of_actions_are_compared_exactly() -> None:
    actions = ActionConverter(gym.spaces.Discrete(200_000), 1)
    assert actions.are_alike(np.array(99_999), np.array(99_999))
    assert not actions.are_alike(np.array(99_999), np.array(100_000))
    narrow = ActionConverter(gym.spaces.Box(-1e-7, 1e-7, (1,)), 1)
    assert not narrow.are_alike(np.array([-1e-7]), np.array([1e-7]))


def test_a_loop_that_notes_probabilities_refuses_anothers_action_before_it_counts() -> None:
    space = gym.spaces.Box(-9.0, 99.0, (2,), np.float32)
    envs = PushedEnvs(space, space, None)
    envs.refuses_interventions = True
    envs.begin(np.zeros(2))
    chosen, seen = np.full((1, 2), 5.0), np.ones(2)
    with pytest.raises(ValueError, match="not the policy's own"):
        envs.push(chosen, 1.0, seen, False, False, [(0, np.full(2, 7.0))])
    greedy = np.ones(1, np.bool_)
    envs.push(chosen, 1.0, seen, False, False, [(0, np.full(2, 7.0))], greedy)  # not stored
    envs.push(chosen, 1.0, seen, True, False, [(0, np.full(2, 5.0))])
    assert envs.pop_finished_episodes() == []  # a part of it was left out


class Wrong(gym.Env[Any, Any]):
    """Says that a person executed what its space may not have."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, executed: Any, space: str = "discrete") -> None:
        self._executed = executed
        spaces: dict[str, gym.Space[Any]] = {
            "discrete": gym.spaces.Discrete(3, start=10),
            "several": gym.spaces.MultiDiscrete(np.array([5, 2], np.uint8), dtype=np.uint8),
            "box": gym.spaces.Box(-2.0, 2.0, (1,), np.float32),
        }
        self.action_space = spaces[space]

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, False, False, {"intervene_action": self._executed}


WRONG = [
    (11.7, "discrete", r"11\.7 is no int64"),
    (99, "discrete", "99 is outside 10 to 12"),
    (1, "discrete", "1 is outside 10 to 12"),
    ("left", "discrete", "it is of <U4: numbers are needed"),
    ([300, 0], "several", r"300 at \[0\] is outside 0 to 4"),
    ([0, 2], "several", r"2 at \[1\] is outside 0 to 1"),
    ([1e9], "box", r"1000000000.0 at \[0\] is outside -42.0 to 42.0"),
    (["1"], "box", "numbers are needed"),
    ([0.5, 0.5], "box", r"has shape \(2,\), not \(1,\)"),
]


@pytest.mark.parametrize(("executed", "space", "why"), WRONG)
def test_an_executed_action_that_its_space_does_not_have_is_refused(
    executed: Any, space: str, why: str
) -> None:
    kwargs = {"executed": executed, "space": space}
    envs = make_vector_environment(EnvConfig(id=f"{__name__}:Wrong", kwargs=kwargs), 1, 0)
    envs.reset()
    with pytest.raises(EnvironmentFaultError, match=f"of interventions: action .*{why}"):
        envs.step(np.zeros((1, *envs.spaces.action.shape)))
    envs.close()


@pytest.mark.slow
def test_an_environment_in_a_process_casts_no_executed_action(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    kwargs = {"executed": [300, 0], "space": "several"}  # 300 would be 44
    config = EnvConfig(id=f"{__name__}:Wrong", kwargs=kwargs, stepping="processes")
    envs = make_vector_environment(config, 2, 0, make_processes=ProcessEnvs)
    envs.reset()
    with pytest.raises(EnvironmentProcessError, match="300 is no uint8"):
        envs.step(np.zeros((2, 2)))
    envs.close()


def test_numbers_of_a_policy_are_not_cast_to_others() -> None:
    actions = ActionConverter(gym.spaces.Discrete(3), 2)
    assert actions.to_column(np.array([1.0, 2.0])).dtype == np.int64
    with pytest.raises(ValueError, match=r"1\.7 is no int64"):
        actions.to_column(np.array([1.7, 0.0]))


def test_unmarked_steps_have_no_column_and_still_the_executed_action() -> None:
    envs = make_vector_environment(EnvConfig(id=HERE), 1, 0)
    envs.reset()
    for _ in range(3):
        step = envs.step(np.full((1, 2), 5.0))
    assert step.action.tolist() == [[3.0, 3.0]]
    assert step.extra == {}


def test_an_intervention_without_its_action_is_an_error_that_names_the_fix() -> None:
    assert find_intervention({"is_intervention": False}) is None
    with pytest.raises(EnvironmentFaultError, match="intervene_action"):
        find_intervention({"is_intervention": True})
