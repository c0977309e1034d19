"""The contract of step processors."""

from __future__ import annotations

from typing import Any

import numpy as np

from vedette_rl.core import Columns, StepProcessor
from vedette_rl.envs.spaces import transition_dtype
from vedette_rl.envs.vector_env import LoopVectorEnv, VectorEnvironment
from vedette_rl.testing.scripted import ScriptedEnv

_NUMBER, _EPISODE, _T = 0, 1, 2  # what a ScriptedEnv's observation holds


class StepProcessorContract:
    """A mixin of tests; give it your processor.

    ::

        class TestMyProcessor(StepProcessorContract):
            def make_processor(self, envs: int, dtype: np.dtype) -> StepProcessor: ...
    """

    steps = 40

    def make_processor(self, envs: int, dtype: np.dtype[Any]) -> StepProcessor:
        """A new processor for a row of `envs` and transitions of `dtype`."""
        raise NotImplementedError

    def make_row(self) -> VectorEnvironment:
        """Three environments with every kind of end."""
        scripts: list[list[Any]] = [
            [(3, "terminated"), (4, "truncated"), (1, "both"), (9, "truncated")],
            [(1, "truncated"), (2, "terminated")],
            [(100, "terminated")],
        ]
        envs = [ScriptedEnv(number, script) for number, script in enumerate(scripts)]
        return LoopVectorEnv(envs, seed=0)

    def play(self) -> list[Columns]:
        """The transitions of each of some steps, and of the flush."""
        row = self.make_row()
        processor = self.make_processor(len(row), transition_dtype(row.spaces))
        row.reset()
        action = np.zeros(len(row), np.int64)
        given = [processor.process(row.step(action)) for _ in range(self.steps)]
        return [*given, processor.flush(), processor.flush()]

    def test_it_is_a_step_processor(self) -> None:
        dtype = transition_dtype(self.make_row().spaces)
        assert isinstance(self.make_processor(3, dtype), StepProcessor)

    def test_transitions_have_the_columns_agreed_on(self) -> None:
        dtype = transition_dtype(self.make_row().spaces)
        for columns in self.play():
            assert tuple(columns) == dtype.names
            assert len({len(column) for column in columns.values()}) == 1
            for name, column in columns.items():
                assert (column.dtype, column.shape[1:]) == (dtype[name].base, dtype[name].shape)

    def test_transitions_belong_to_the_caller(self) -> None:
        row = self.make_row()
        processor = self.make_processor(len(row), transition_dtype(row.spaces))
        row.reset()
        kept: list[tuple[Columns, Columns]] = []
        for _ in range(self.steps):
            columns = processor.process(row.step(np.zeros(len(row), np.int64)))
            kept.append((columns, {name: column.copy() for name, column in columns.items()}))
        for columns, copies in kept:
            for name, column in columns.items():
                np.testing.assert_array_equal(column, copies[name])

    def test_no_transition_reaches_into_another_episode(self) -> None:
        for columns in self.play():
            before, after = columns["obs"], columns["next_obs"]
            np.testing.assert_array_equal(before[:, _NUMBER], after[:, _NUMBER])
            np.testing.assert_array_equal(before[:, _EPISODE], after[:, _EPISODE])
            np.testing.assert_array_equal(after[:, _T] - before[:, _T], columns["n_steps"])

    def test_every_step_begins_one_transition(self) -> None:
        begun = np.concatenate([columns["obs"] for columns in self.play()])
        assert len(begun) == 3 * self.steps
        assert len(np.unique(begun, axis=0)) == len(begun)

    def test_ends_stand_on_what_reaches_them(self) -> None:
        given = self.play()
        ended = {
            name: np.concatenate([columns[name] for columns in given])
            for name in ("next_obs", "terminated", "truncated")
        }
        first = (ended["next_obs"][:, _NUMBER] == 0) & (ended["next_obs"][:, _EPISODE] <= 2)
        for episode, (length, flags) in enumerate([(3, "t"), (4, "u"), (1, "tu")]):
            own = first & (ended["next_obs"][:, _EPISODE] == episode)
            at_end = own & (ended["next_obs"][:, _T] == length)
            np.testing.assert_array_equal(ended["terminated"][own], at_end[own] & ("t" in flags))
            np.testing.assert_array_equal(ended["truncated"][own], at_end[own] & ("u" in flags))

    def test_a_flush_leaves_nothing(self) -> None:
        assert len(self.play()[-1]["reward"]) == 0
