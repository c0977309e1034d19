"""What a learner that does not answer yet is busy with."""

import time
from pathlib import Path

from vedette_services.run.directory import RunDirectory
from vedette_services.run.outcome import startup_stage


def test_the_stage_is_told_by_what_the_learner_has_made_since_it_started(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    began = time.time() - 10.0
    assert "its process loads" in startup_stage(run, began)
    run.make()
    run.learning_map.touch()
    assert "opens the replay" in startup_stage(run, began)
    run.ingest_map.touch()
    assert "opens its ports" in startup_stage(run, began)
    later = time.time() + 10.0  # a start of its own: what is there is an earlier one's
    assert "its process loads" in startup_stage(run, later)
