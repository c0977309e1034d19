"""The learner is killed again and again while actors push at full speed."""

from pathlib import Path

import pytest
from kills import kill_often
from trial import Trial


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_learner_killed_again_and_again_at_full_speed_keeps_every_row_once(
    tmp_path: Path,
) -> None:
    with Trial("kills", tmp_path) as trial:
        kill_often(trial, 12, seed=1)
        assert not trial.wrong
