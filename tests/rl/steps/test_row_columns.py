"""Declarations of further columns, and how n-step transitions carry them."""

from dataclasses import replace

import numpy as np
import pytest

from vedette_rl.core import RowColumn, Step
from vedette_rl.envs import column_bounds, transition_dtype
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.errors import RowColumnError
from vedette_rl.steps import NStep
from vedette_rl.testing import ScriptedEnv, sampled_transitions


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (("reward",), "every transition has a column of that name"),
        (("version",), "every transition has a column of that name"),
        (("obs/goal",), "its name is not made of letters"),
        (("x", "object"), "object is no number that travels"),
        (("x", "nope"), "numpy knows no dtype 'nope'"),
        (("x", "float32", (0,)), "holds nothing"),
        (("x", "float32", (), 0, 1), "bounds are for integers"),
    ],
)
def test_a_column_that_cannot_be_is_refused(column: tuple[object, ...], why: str) -> None:
    with pytest.raises(RowColumnError, match=why):
        RowColumn(*column)  # type: ignore[arg-type]


def test_declared_columns_stand_behind_the_others_with_their_bounds() -> None:
    spaces = LoopVectorEnv([ScriptedEnv()], seed=0).spaces
    declared = [RowColumn("log_prob"), RowColumn("option", "uint8", (2,), low=1, high=4)]
    dtype = transition_dtype(spaces, declared)
    assert (dtype.names or ())[-3:] == ("n_steps", "log_prob", "option")
    assert column_bounds(spaces, declared)["option"] == (1, 4)
    rows = sampled_transitions(spaces, 100, 0, declared)
    assert set(np.unique(rows["option"])) == {1, 2, 3, 4}


@pytest.mark.parametrize("n", [1, 3])
def test_what_a_step_carries_is_in_the_transition_that_it_begins(n: int) -> None:
    envs = LoopVectorEnv([ScriptedEnv(number) for number in range(3)], seed=0)
    processor = NStep(n, 0.9, 3, transition_dtype(envs.spaces, [RowColumn("seen", shape=(3,))]))
    envs.reset()

    def carrying(step: Step) -> Step:
        return replace(step, extra={"seen": step.obs["obs"].copy()})

    steps = (carrying(envs.step(np.zeros(3, np.int64))) for _ in range(30))
    found = [*map(processor.process, steps), processor.flush(), processor.flush()]
    assert all(list(rows) == [*found[0]] for rows in found)
    for rows in found:
        np.testing.assert_array_equal(rows["seen"], rows["obs"])
    assert sum(len(rows["seen"]) for rows in found) == 90


def test_a_column_that_changes_its_shape_is_not_repeated() -> None:
    envs = LoopVectorEnv([ScriptedEnv(number) for number in range(3)], seed=0)
    processor = NStep(2, 0.9, 3, transition_dtype(envs.spaces, [RowColumn("seen", shape=(3,))]))
    envs.reset()
    step = envs.step(np.zeros(3, np.int64))
    processor.process(replace(step, extra={"seen": step.obs["obs"]}))
    with pytest.raises(RowColumnError, match=r"'seen': it comes as \[3, 1\], and came as \[3, 3\]"):
        processor.process(replace(step, extra={"seen": step.obs["obs"][:, :1]}))
