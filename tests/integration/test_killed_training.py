"""A training whose learner is killed five times needs hardly more steps than one in peace."""

from pathlib import Path

import pytest
from killed_training import TASKS, compare
from trial import Trial


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("task", TASKS)
def test_five_kills_cost_a_training_few_optimization_steps(tmp_path: Path, task: str) -> None:
    with Trial("killed-training", tmp_path) as trial:
        compare(trial, TASKS[task], 8, first=1)
        assert not trial.wrong
