"""The trial that `scripts/lost_host` makes longer."""

from pathlib import Path

import pytest
from lost_host import lose
from namespaces import why_not
from trial import Trial


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_robot_is_killed_and_cut_off_and_its_learners_host_is_destroyed(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with Trial("lost_host", tmp_path / "trial") as trial:
        lose(trial, kills=6, minutes=0.25, seed=1)
    assert trial.wrong == []
