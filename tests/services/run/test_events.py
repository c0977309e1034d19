import json
import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest
from power_failure import RecordedDisk

from vedette_services.run.events import TEXT_MAX, EventFile, RunEvent, read_events

JOINED = RunEvent(1.5, "joined", "alpha", "on gpu-1, 4 actors", 2, 300, 4000)


def test_events_are_read_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    EventFile(path).add(JOINED, replace(JOINED, kind="left"))
    EventFile(path).add(replace(JOINED, kind="ended"))
    events, broken = read_events(path)
    assert [event.kind for event in events] == ["joined", "left", "ended"]
    assert events[0] == JOINED
    assert broken == 0


def test_a_run_without_events_has_none(tmp_path: Path) -> None:
    assert read_events(tmp_path / "events.jsonl") == ([], 0)


def test_half_a_line_of_a_killed_writer_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    EventFile(path).add(JOINED)
    path.write_text(path.read_text() + '{"time_s": 1')
    EventFile(path).add(replace(JOINED, kind="left"))
    events, broken = read_events(path)
    assert [event.kind for event in events] == ["joined", "left"]
    assert broken == 1


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "7",
        "{}",
        '{"time_s": 1, "kind": "joined"}',
        json.dumps(
            {
                "time_s": "x",
                "kind": "joined",
                "who": "",
                "text": "",
                "epoch": 1,
                "opt_steps": 1,
                "env_steps": 1,
            }
        ),
        json.dumps(
            {
                "time_s": 1e999,
                "kind": "joined",
                "who": "",
                "text": "",
                "epoch": 1,
                "opt_steps": 1,
                "env_steps": 1,
            }
        ),
        json.dumps(
            {
                "time_s": 1,
                "kind": "exploded",
                "who": "",
                "text": "",
                "epoch": 1,
                "opt_steps": 1,
                "env_steps": 1,
            }
        ),
        "\0\0\0",
    ],
)
def test_a_line_that_is_no_event_is_counted(line: str, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line + "\n")
    assert read_events(path) == ([], 1)


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    EventFile(path).add(replace(JOINED, text="x" * 10_000))
    assert path.stat().st_size < 1000
    assert len(read_events(path)[0][0].text) == TEXT_MAX


def test_the_file_stays_bounded_and_keeps_what_the_learner_did(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventFile(path, bytes_max=20_000)
    log.add(replace(JOINED, kind="epoch", text="epoch 1"))
    for number in range(1000):
        log.add(replace(JOINED, who=f"m-{number}"))
        assert path.stat().st_size <= 20_300
    events, broken = read_events(path)
    assert broken == 0
    assert [event.kind for event in events[:2]] == ["forgotten", "epoch"]
    assert events[-1].who == "m-999"
    assert int(events[0].who) + len(events) - 1 == 1001


def test_a_learner_that_does_nothing_but_die_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventFile(path, bytes_max=20_000)
    for number in range(1000):
        log.add(replace(JOINED, kind="died", text=str(number)))
    assert path.stat().st_size <= 20_300
    assert read_events(path)[0][-1].text == "999"


def test_a_power_failure_takes_nothing_that_the_learner_did(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    recovered = replace(JOINED, kind="recovered", text="1,888 rows kept")
    with RecordedDisk(run, random.Random(0)) as disk:
        EventFile(run / "events.jsonl").add(recovered)
        EventFile(run / "events.jsonl").add(JOINED)
        for place in range(20):
            disk.lose_power(left := tmp_path / f"left-{place}")
            assert read_events(left / "events.jsonl")[0][0] == recovered


def test_a_disk_that_refuses_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = EventFile(tmp_path / "nowhere" / "events.jsonl")
    with caplog.at_level(logging.WARNING):
        log.add(JOINED)
        log.add(JOINED)
    assert [r.message for r in caplog.records] == [
        "events.jsonl not written: No such file or directory"
    ]
    (tmp_path / "nowhere").mkdir()
    log.add(JOINED)
    assert len(read_events(tmp_path / "nowhere" / "events.jsonl")[0]) == 1
