"""Rows of environments: the same transitions come out whichever way they are stepped."""

import re
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vedette_rl.envs import (
    EnvConfig,
    VectorEnvironment,
    make,
    make_vector_environment,
    transition_dtype,
)
from vedette_rl.envs.layout import ObservationLayout, RewardTransform
from vedette_rl.envs.native_vector_env import NativeVectorEnv
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.errors import SpaceLayoutError, UnknownEnvironmentError
from vedette_rl.steps import NStep
from vedette_rl.testing.inputs import ScriptedEnv

MakeRow = Callable[..., VectorEnvironment]
SCRIPTS = (
    ((3, "terminated"), (4, "truncated"), (1, "both")),
    ((1, "truncated"), (2, "terminated")),
    ((5, "terminated"),),
)


def scripted(kind: str = "box") -> list[ScriptedEnv]:
    return [ScriptedEnv(i, script, kind) for i, script in enumerate(SCRIPTS)]


def loop_row(kind: str = "box", **arguments: Any) -> VectorEnvironment:
    return LoopVectorEnv(scripted(kind), seed=0, **arguments)


def vector_row(mode: AutoresetMode) -> MakeRow:
    def make(kind: str = "box", **arguments: Any) -> VectorEnvironment:
        makers = [lambda env=env: env for env in scripted(kind)]
        return NativeVectorEnv(SyncVectorEnv(makers, autoreset_mode=mode), seed=0, **arguments)

    return make


ROWS = [pytest.param(loop_row, id="loop")]
ROWS += [pytest.param(vector_row(mode), id=mode.value) for mode in AutoresetMode]


def played(row: VectorEnvironment, steps: int) -> list[tuple[Any, ...]]:
    """(number, episode, step, next number, episode, step, reward, terminated, truncated)."""
    processor = NStep(1, 0.99, len(row), transition_dtype(row.spaces))
    seen = []
    row.reset()
    for _ in range(steps):
        columns = processor.process(row.step(np.zeros(len(row), np.int64)))
        for i in range(len(columns["reward"])):
            before, after = columns["obs"][i].tolist(), columns["next_obs"][i].tolist()
            ends = bool(columns["terminated"][i]), bool(columns["truncated"][i])
            seen.append((*before, *after, float(columns["reward"][i]), *ends))
    return seen


def expected(number: int, steps: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    episode = 0
    while len(rows) < steps:
        length, end = SCRIPTS[number][min(episode, len(SCRIPTS[number]) - 1)]
        for t in range(length):
            over = t + 1 == length
            ends = over and end != "truncated", over and end != "terminated"
            reward = 1.0 + t + 100.0 * episode
            rows.append((number, episode, t, number, episode, t + 1, reward, *ends))
        episode += 1
    return rows[:steps]


@pytest.mark.parametrize("make", ROWS)
def test_a_row_plays_every_transition_of_every_episode_once(make: MakeRow) -> None:
    seen = played(make(), 30)
    for number in range(len(SCRIPTS)):
        own = [row for row in seen if row[0] == number]
        assert own == expected(number, len(own))
        assert len(own) > 15


def test_a_loop_wastes_no_step() -> None:
    assert len(played(loop_row(), 30)) == 30 * len(SCRIPTS)


@pytest.mark.parametrize("make", ROWS)
def test_the_next_action_is_chosen_on_the_new_episode(make: MakeRow) -> None:
    row = make()
    obs = {name: column.copy() for name, column in row.reset().items()}
    for _ in range(20):
        step = row.step(np.zeros(len(row), np.int64))
        for name, column in step.obs.items():
            np.testing.assert_array_equal(column, obs[name])
        begins = step.init_obs["obs"][:, 2] == 0
        resets = ~step.valid | (step.terminated | step.truncated)
        assert not (begins & ~resets).any()
        obs = {name: column.copy() for name, column in step.init_obs.items()}


@pytest.mark.parametrize("make", ROWS)
def test_a_steps_arrays_hold_until_the_next_step(make: MakeRow) -> None:
    row = make()
    row.reset()
    for _ in range(20):
        step = row.step(np.zeros(len(row), np.int64))
        arrays = [step.obs["obs"], step.next_obs["obs"]]
        assert not np.shares_memory(*arrays)
        ended = step.terminated | step.truncated
        if isinstance(row, LoopVectorEnv) and ended.any():
            assert not np.shares_memory(step.init_obs["obs"], step.next_obs["obs"])
            assert (step.next_obs["obs"][ended, 2] > 0).all()


@pytest.mark.parametrize("make", ROWS)
def test_true_returns_and_lengths_are_told_once(make: MakeRow) -> None:
    row = make(rewards=RewardTransform(scale=0.5, clip=1.0))
    row.reset()
    finished = []
    for _ in range(6):
        step = row.step(np.zeros(len(row), np.int64))
        assert step.reward.max() <= 1.0
        finished += row.pop_finished_episodes()
    assert row.pop_finished_episodes() == []
    assert (6.0, 3) in finished  # 1 + 2 + 3
    assert (1.0, 1) in finished
    assert (15.0, 5) in finished
    lengths = {0: [3, 4, 1], 1: [1, 2], 2: [5]}
    assert {length for _, length in finished} <= {n for ns in lengths.values() for n in ns}


@pytest.mark.parametrize("make", ROWS)
@pytest.mark.parametrize("kind", ["dict", "tuple", "discrete"])
def test_nested_observations_become_columns(make: MakeRow, kind: str) -> None:
    row = make(kind)
    obs = row.reset()
    names = {
        "dict": {"obs/number", "obs/step", "obs/where/episode"},
        "tuple": {"obs/0", "obs/1"},
        "discrete": {"obs"},
    }[kind]
    step_name = {"dict": "obs/step", "tuple": "obs/1", "discrete": "obs"}[kind]
    assert set(obs) == names
    for _ in range(25):
        step = row.step(np.zeros(len(row), np.int64))
        one_apart = step.next_obs[step_name] - step.obs[step_name] == 1
        assert one_apart.reshape(len(row), -1).all(axis=1)[step.valid].all()


def test_float64_is_stored_as_float32_and_the_rest_stays() -> None:
    dtype = transition_dtype(loop_row("tuple").spaces)
    assert dtype["obs/0"].base == np.float32
    assert dtype["next_obs/1"].base == np.uint8
    assert transition_dtype(loop_row("dict").spaces)["obs/step"].base == np.int64
    assert loop_row().reset()["obs"].dtype == np.float32


@pytest.mark.parametrize("make", ROWS)
def test_discrete_actions_count_from_zero_for_the_agent(make: MakeRow) -> None:
    row = make()
    assert row.spaces.action == gym.spaces.Discrete(3)
    row.reset()
    step = row.step(np.array([0, 1, 2]))
    assert step.action.tolist() == [0, 1, 2]
    envs = row._envs.envs if isinstance(row, NativeVectorEnv) else row.group.envs  # type: ignore[attr-defined]  # looks inside
    assert [int(env.actions[0]) for env in envs] == [2, 3, 4]


def test_each_environment_is_seeded_once_and_differently() -> None:
    envs = scripted()
    row = LoopVectorEnv(envs, seed=7)
    row.reset()
    for _ in range(10):
        row.step(np.zeros(3, np.int64))
    assert len({env.seeds[0] for env in envs}) == 3
    assert all(seed is None for env in envs for seed in env.seeds[1:])
    again = scripted()
    LoopVectorEnv(again, seed=7).reset()
    assert [env.seeds[0] for env in again] == [env.seeds[0] for env in envs]


def test_an_exception_of_an_environment_comes_out_as_it_is() -> None:
    class Broken(ScriptedEnv):
        def step(self, action: Any) -> Any:
            raise ZeroDivisionError("my own fault")

    row = LoopVectorEnv([ScriptedEnv(), Broken()], seed=0)
    row.reset()
    with pytest.raises(ZeroDivisionError, match="my own fault") as caught:
        row.step(np.zeros(2, np.int64))
    assert "in environment 1 of 2" in caught.value.__notes__[0]
    assert caught.traceback[-1].name == "step"


def test_actions_of_another_shape_are_refused() -> None:
    row = loop_row()
    row.reset()
    with pytest.raises(ValueError, match=r"shape \(3, 1\), expected \(3,\)"):
        row.step(np.zeros((3, 1), np.int64))


def test_an_observation_of_another_shape_than_its_space_is_refused() -> None:
    class Liar(ScriptedEnv):
        def _obs(self) -> Any:
            return np.zeros(1)

    with pytest.raises(SpaceLayoutError, match="has shape"):
        LoopVectorEnv([Liar()], seed=0).reset()


@pytest.mark.parametrize("wide", [1, 800], ids=["gathered", "by rows"])
@pytest.mark.parametrize("shape", [(4, 1), (1,), (), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("who", ["one", "all"])
def test_an_observation_that_changes_its_shape_is_refused(
    who: str, shape: tuple[int, ...], wide: int
) -> None:
    rows = np.zeros((3, 3, wide), np.float64)
    layout = ObservationLayout(gym.spaces.Box(-1, 1, (3, wide), np.float64))
    columns = layout.empty(3)
    layout.write_rows(columns, tuple(rows))
    changed = np.zeros(shape)
    seen = (changed,) * 3 if who == "all" else (rows[0], changed, rows[2])
    with pytest.raises(SpaceLayoutError, match=re.escape(f"'obs' has shape {shape}")):
        layout.write_rows(columns, seen)


def test_a_part_that_changes_its_shape_is_named() -> None:
    parts = {"a": gym.spaces.Box(-1, 1, (2,)), "b": gym.spaces.Discrete(3)}
    layout = ObservationLayout(gym.spaces.Dict(parts))
    columns = layout.empty(2)
    good = {"a": np.zeros(2), "b": 1}
    layout.write_rows(columns, (good, good))
    with pytest.raises(SpaceLayoutError, match=r"'obs/a' has shape \(1,\)"):
        layout.write_rows(columns, (good, {**good, "a": np.zeros(1)}))


def test_a_batch_of_another_shape_than_its_space_is_refused() -> None:
    layout = ObservationLayout(gym.spaces.Box(-1, 1, (3,)))
    columns = layout.empty(2)
    layout.write_all(columns, np.zeros((2, 3), np.float32))
    with pytest.raises(SpaceLayoutError, match=r"'obs' has shape \(2, 1\)"):
        layout.write_all(columns, np.zeros((2, 1), np.float32))


def test_a_vector_form_without_an_autoreset_mode_is_refused() -> None:
    envs = SyncVectorEnv([ScriptedEnv])
    envs.metadata = {}
    with pytest.raises(UnknownEnvironmentError, match="autoreset mode None"):
        NativeVectorEnv(envs, seed=0)


def test_a_same_step_vector_form_without_final_observations_is_refused() -> None:
    class Forgetful(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            return *super().step(actions)[:4], {}

    row = NativeVectorEnv(Forgetful([ScriptedEnv], autoreset_mode="SameStep"), seed=0)
    row.reset()
    for _ in range(2):
        row.step(np.zeros(1, np.int64))
    with pytest.raises(UnknownEnvironmentError, match="final_obs"):
        row.step(np.zeros(1, np.int64))


def test_final_observations_may_come_as_a_batch() -> None:
    class Batched(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            *rest, infos = super().step(actions)
            if "final_obs" in infos:
                ends = [np.zeros(3) if obs is None else obs for obs in infos["final_obs"]]
                infos["final_obs"] = np.stack(ends)
            return *rest, infos

    row = NativeVectorEnv(Batched([ScriptedEnv], autoreset_mode="SameStep"), seed=0)
    assert [transition[5] for transition in played(row, 7)] == [1, 2, 3, 1, 2, 3, 4]


@pytest.mark.parametrize("vectorization", ["loop", "vector_entry_point", "auto"])
def test_cartpole_is_played_whole_either_way(vectorization: str) -> None:
    config = EnvConfig(id="CartPole-v1", vectorization=vectorization, max_episode_steps=12)
    row = make_vector_environment(config, 33, seed=3)
    assert isinstance(row, LoopVectorEnv) == (vectorization == "loop")
    rng = np.random.default_rng(0)
    row.reset()
    for _ in range(60):
        step = row.step(rng.integers(0, 2, 33))
        near = np.abs(step.next_obs["obs"] - step.obs["obs"])[:, 0] < 0.2
        assert near[step.valid].all()
    finished = row.pop_finished_episodes()
    assert max(length for _, length in finished) == 12
    assert all(total == length for total, length in finished)
    row.close()


def test_a_box_action_reaches_the_environment_in_its_own_dtype() -> None:
    row = make_vector_environment(EnvConfig(id="Pendulum-v1"), 2, seed=0)
    row.reset()
    step = row.step(np.array([[0.5], [-0.5]], np.float32))
    assert step.action.dtype == np.float32
    assert step.valid.all()
    row.close()


def test_a_long_row_takes_the_vector_form_unless_it_is_wrapped() -> None:
    clip = {"name": "gymnasium.wrappers:ClipReward", "kwargs": {"min_reward": 0}}
    plain = make_vector_environment(EnvConfig(id="CartPole-v1"), 32, seed=0)
    wrapped = make_vector_environment(EnvConfig(id="CartPole-v1", wrappers=(clip,)), 32, seed=0)
    assert isinstance(plain, NativeVectorEnv)
    assert isinstance(wrapped, LoopVectorEnv)


@pytest.mark.parametrize(
    ("fits", "kind", "singles"),
    [
        (lambda spaces: True, NativeVectorEnv, 0),
        (lambda spaces: False, LoopVectorEnv, 32),
        (None, NativeVectorEnv, 1),
    ],
)
def test_who_knows_the_spaces_makes_no_single_environment_for_a_vector_form(
    fits: Any, kind: type, singles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mock(side_effect=make._make_env)
    monkeypatch.setattr(make, "_make_env", made)
    row = make_vector_environment(EnvConfig(id="CartPole-v1"), 32, seed=0, fits=fits)
    assert isinstance(row, kind)
    assert made.call_count == singles
    row.close()
