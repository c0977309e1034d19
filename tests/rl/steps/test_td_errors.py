"""The TD errors that actors add to their transitions."""

from typing import Any

import numpy as np

from vedette_rl.core import Columns, Step
from vedette_rl.replay.prioritized import TD_ERROR
from vedette_rl.steps.td_errors import StepsWithTdErrors


class Transitions:
    """A step processor that gives what it is told to."""

    def __init__(self, *parts: list[float]) -> None:
        self._parts = list(parts)

    def process(self, step: Any) -> Columns:
        return {"reward": np.array(self._parts.pop(0), np.float32)}

    def flush(self) -> Columns:
        return self.process(None)


class TenTimes:
    """Tells ten times the reward."""

    def td_errors(self, transitions: Columns) -> Any:
        assert len(transitions["reward"])
        return transitions["whole"] * 10


def test_every_transition_gets_the_error_of_the_whole_one() -> None:
    steps = StepsWithTdErrors(
        Transitions([1.0, 2.0], [], [3.0]),
        TenTimes(),
        lambda transitions: {**transitions, "whole": transitions["reward"]},
    )
    step: Step = None  # type: ignore[assignment]  # nobody looks at it
    for expected in ([10.0, 20.0], []):
        found = steps.process(step)
        assert list(found) == ["reward", TD_ERROR]
        assert found[TD_ERROR].tolist() == expected
        assert found[TD_ERROR].dtype == np.float32
    assert steps.flush()[TD_ERROR].tolist() == [30.0]
