"""One training time of a run, wherever it is shown."""

from pathlib import Path

import numpy as np
import pytest

from vedette_rl.storage.atomic_files import write_json
from vedette_services.run.active_time import run_seconds, start_spans, training_time_before
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import EventFile, RunEvent
from vedette_services.status.status import Status

SPANS = [(1000.0, 1100.0), (2000.0, 2015.0)]
"""Of two starts; a span begins with the processes, which take a while to load."""


@pytest.mark.parametrize(
    ("summary", "seconds"),
    [
        # of the last start, whose trainer was restarted 2 s before
        (Status(time_s=2014.0, seconds=2.0, run_seconds=99.5), 99.5),
        # of the start before: the last one loads its processes, and has not trained yet
        (Status(time_s=1100.0, seconds=90.0, run_seconds=90.0), 90.0),
        # of a release that knew its last start alone
        (Status(time_s=2014.0, seconds=4.0), 104.0),
        (Status(), 115.0),
    ],
)
def test_the_training_time_is_the_number_of_the_status(summary: Status, seconds: float) -> None:
    assert run_seconds(SPANS, summary) == seconds


def test_a_start_goes_on_counting_where_the_last_one_has_ended(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert training_time_before(run).run_s == 0.0
    events = EventFile(run.events_file)
    events.add(RunEvent(1000.0, "started", "learner"), RunEvent(1100.0, "ended", "learner"))
    events.add(RunEvent(2000.0, "started", "learner"))
    write_json(run.summary_file, Status(time_s=1100.0, seconds=90.0).as_dict())
    assert training_time_before(run).run_s == 90.0, "of release 0.3"
    known = Status(time_s=1100.0, seconds=2.0, run_seconds=93.0)
    write_json(run.summary_file, known.as_dict())
    assert training_time_before(run).run_s == 93.0


def test_starts_follow_one_another_as_logged_also_by_a_clock_that_was_set_back() -> None:
    begins = [86_400.0, 1000.0]
    events = [RunEvent(time_s, "started", "learner") for time_s in begins]
    events.insert(1, RunEvent(86_500.0, "ended", "learner"))
    assert start_spans(events, 1600.0) == [(86_400.0, 86_500.0), (1000.0, 1600.0)]
    del events[1]  # killed
    assert start_spans(events, 1600.0) == [(86_400.0, 86_400.0), (1000.0, 1600.0)]


def test_what_a_clock_that_was_ahead_has_recorded_is_of_its_own_start() -> None:
    events = [
        RunEvent(86_400.0, "started", "learner"),
        RunEvent(86_500.0, "ended", "learner"),
        RunEvent(1000.0, "started", "learner"),
    ]
    curves = [np.array([86_410.0, 86_490.0, 1010.0, 1500.0])]
    first = (86_400.0, 86_500.0)
    assert start_spans(events, 1600.0, curves) == [first, (1000.0, 1600.0)]
    assert start_spans(events, 86_500.0, curves) == [first, (1000.0, 1500.0)]  # of the first
    assert start_spans(events, 86_500.0) == [first, (1000.0, 1000.0)]


def test_a_status_of_the_start_before_is_told_by_a_clock_that_was_ahead(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    events = EventFile(run.events_file)
    events.add(RunEvent(86_400.0, "started", "learner"), RunEvent(86_500.0, "ended", "learner"))
    events.add(RunEvent(1000.0, "started", "learner"))
    write_json(run.summary_file, Status(time_s=86_500.0, seconds=90.0).as_dict())
    assert training_time_before(run).run_s == 90.0
