"""n-step transitions against a naive walk over the trajectory."""

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette_rl.core import Columns
from vedette_rl.envs import VectorEnvironment, transition_dtype
from vedette_rl.envs.native_vector_env import NativeVectorEnv
from vedette_rl.envs.vector_env import LoopVectorEnv, SerialEnvs
from vedette_rl.steps import NStep
from vedette_rl.testing.inputs import ScriptedEnv

DISCOUNT = 0.5
Row = tuple[Any, ...]


def rows_of(columns: Columns) -> list[Row]:
    return [
        (
            *columns["obs"][i].tolist(),
            *columns["next_obs"][i].tolist(),
            round(float(columns["reward"][i]), 4),
            bool(columns["terminated"][i]),
            bool(columns["truncated"][i]),
            int(columns["n_steps"][i]),
        )
        for i in range(len(columns["reward"]))
    ]


def collected(row: VectorEnvironment, n: int, steps: int) -> list[Row]:
    processor = NStep(n, DISCOUNT, len(row), transition_dtype(row.spaces))
    row.reset()
    seen: list[Row] = []
    for _ in range(steps):
        seen += rows_of(processor.process(row.step(np.zeros(len(row), np.int64))))
    return seen + rows_of(processor.flush())


def naive(number: int, script: list[tuple[int, str]], n: int, steps: int) -> list[Row]:
    """Every transition of `steps` steps, one after the other."""
    found: list[Row] = []
    episode = 0
    left = steps
    while left:
        length, end = script[min(episode, len(script) - 1)]
        played = min(length, left)
        for t in range(played):
            age = min(n, played - t)
            rewards = [1.0 + t + k + 100.0 * episode for k in range(age)]
            total = sum(DISCOUNT**k * reward for k, reward in enumerate(rewards))
            over = t + age == length
            ends = over and end != "truncated", over and end != "terminated"
            now = (number, episode, t)
            then = (number, episode, t + age)
            found.append((*now, *then, round(total, 4), *ends, age))
        episode = episode + 1
        left = left - played
    return found


scripts = st.lists(
    st.tuples(st.integers(1, 7), st.sampled_from(["terminated", "truncated", "both"])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60)
@given(st.lists(scripts, min_size=1, max_size=3), st.integers(1, 5), st.integers(1, 25))
def test_any_trajectory_gives_the_transitions_of_a_naive_walk(
    all_scripts: list[list[tuple[int, Any]]], n: int, steps: int
) -> None:
    row = LoopVectorEnv([ScriptedEnv(i, s) for i, s in enumerate(all_scripts)], seed=0)
    seen = collected(row, n, steps)
    for number, script in enumerate(all_scripts):
        own = [found for found in seen if found[0] == number]
        assert own == naive(number, script, n, steps)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_autoreset_mode_gives_the_same_transitions(mode: AutoresetMode, n: int) -> None:
    script: list[tuple[int, Any]] = [(2, "truncated"), (1, "terminated"), (4, "both"), (3, "both")]
    wasted = 3 if mode is AutoresetMode.NEXT_STEP else 0  # one step for each of the first resets
    envs = SyncVectorEnv([lambda: ScriptedEnv(0, script)], autoreset_mode=mode)
    assert collected(NativeVectorEnv(envs, seed=0), n, 10 + wasted) == naive(0, script, n, 10)


def test_the_discounted_return_is_the_hand_computed_one() -> None:
    row = LoopVectorEnv([ScriptedEnv(0, [(3, "terminated")])], seed=0)
    seen = collected(row, 3, 3)
    assert [found[6] for found in seen] == [1 + 0.5 * 2 + 0.25 * 3, 2 + 0.5 * 3, 3.0]
    assert [found[9] for found in seen] == [3, 2, 1]
    assert all(found[7] and not found[8] for found in seen)


def test_flush_leaves_nothing_and_its_values_still_count() -> None:
    row = LoopVectorEnv([ScriptedEnv(0, [(100, "terminated")])], seed=0)
    processor = NStep(5, DISCOUNT, 1, transition_dtype(row.spaces))
    row.reset()
    for _ in range(3):
        assert len(processor.process(row.step(np.zeros(1, np.int64)))["reward"]) == 0
    left = rows_of(processor.flush())
    assert [found[9] for found in left] == [3, 2, 1]
    assert not any(found[7] or found[8] for found in left)
    assert rows_of(processor.flush()) == []
    for _ in range(5):
        last = processor.process(row.step(np.zeros(1, np.int64)))
    assert rows_of(last)[0][2] == 3  # it begins anew where it was flushed


class FailsOnce(ScriptedEnv):
    """Fails in its fourth step."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 4:
            raise RuntimeError("broken")
        return super().step(action)


@pytest.mark.parametrize("third", [100, 3])  # another buffer is in use where an episode had ended
def test_where_an_environment_fails_unfinished_transitions_end_before_that_step(third: int) -> None:
    scripts: list[list[tuple[int, Any]]] = [
        [(100, "both")],
        [(4, "terminated"), (100, "both")],
        [(third, "terminated"), (100, "both")],
    ]
    made = iter([ScriptedEnv(0, [(100, "both")])])
    envs = [FailsOnce(0, scripts[0]), *(ScriptedEnv(i, scripts[i]) for i in (1, 2))]
    row = LoopVectorEnv(SerialEnvs(envs, lambda: next(made)), seed=0, makes_again=True)
    processor = NStep(3, DISCOUNT, 3, transition_dtype(row.spaces))
    row.reset()
    before = [
        found
        for _ in range(3)
        for found in rows_of(processor.process(row.step(np.zeros(3, np.int64))))
    ]
    step = row.step(np.zeros(3, np.int64))  # as actors do: they know of a failure afterwards
    assert list(row.lost) == [0]
    before += rows_of(processor.flush())
    for number, script in enumerate(scripts):
        assert [found for found in before if found[0] == number] == naive(number, script, 3, 3)
    # the second ended in the step in which the first failed: one transition, of one step
    ended = [found for found in rows_of(processor.process(step)) if found[0] == 1]
    assert ended == [(1, 0, 3, 1, 0, 4, 4.0, True, False, 1)]


@pytest.mark.parametrize("n", [1, 3])
def test_transitions_are_the_callers_own(n: int) -> None:
    row = LoopVectorEnv([ScriptedEnv(0, [(100, "terminated")])], seed=0)
    dtype = transition_dtype(row.spaces)
    processor = NStep(n, DISCOUNT, 1, dtype)
    row.reset()
    kept: list[Columns] = []
    copies: list[Columns] = []
    for _ in range(8):
        kept.append(processor.process(row.step(np.zeros(1, np.int64))))
        copies.append({name: column.copy() for name, column in kept[-1].items()})
        assert tuple(kept[-1]) == dtype.names
        assert all(kept[-1][name].dtype == dtype[name].base for name in kept[-1])
    for columns, copy in zip(kept, copies, strict=True):
        for name, column in columns.items():
            np.testing.assert_array_equal(column, copy[name])


@pytest.mark.parametrize("n", [0, 256])
def test_an_impossible_n_is_refused(n: int) -> None:
    dtype = transition_dtype(LoopVectorEnv([ScriptedEnv()], seed=0).spaces)
    with pytest.raises(ValueError, match="1 to 255"):
        NStep(n, DISCOUNT, 1, dtype)
