"""A training whose learner is killed five times needs hardly more steps than one in peace."""

from pathlib import Path

import pytest
from killed_training import compare
from trial import Trial


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_kills_cost_a_training_few_optimization_steps(tmp_path: Path) -> None:
    with Trial("killed-training", tmp_path) as trial:
        compare(trial, 8, first=1)
        assert not trial.wrong
