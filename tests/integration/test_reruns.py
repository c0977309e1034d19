"""Whole learners that are killed are executed again, bit by bit."""

from pathlib import Path

import pytest
from reruns import execute_many
from trial import Trial


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_learners_are_executed_again_bit_by_bit(tmp_path: Path) -> None:
    with Trial("reruns", tmp_path) as trial:
        execute_many(trial, 6, 1, daemons=True)
        assert not trial.wrong
