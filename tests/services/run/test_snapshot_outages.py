"""Outages of the snapshot in the event log."""

from pathlib import Path

from vedette_services.run.events import RunEventLog, read_events
from vedette_services.run.snapshot_outages import SnapshotOutages
from vedette_services.status.status import SnapshotStatus

WELL = SnapshotStatus("/mnt/nas", "written", 3)
AWAY = SnapshotStatus("/mnt/nas", "away", 3, failing="Stale file handle (/mnt/nas)")


def test_an_outage_is_said_once_and_its_end_with_how_long_it_lasted() -> None:
    outages = SnapshotOutages()
    said = [
        outages.line(snapshot, now)
        for now, snapshot in ((1.0, WELL), (2.0, AWAY), (3.0, AWAY), (44.0, WELL), (45.0, WELL))
    ]
    assert said == [
        "",
        "cannot be written: Stale file handle (/mnt/nas)",
        "",
        "written again, after 42 s: generation 3",
        "",
    ]


def test_a_disk_that_comes_and_goes_is_two_lines_a_minute() -> None:
    outages = SnapshotOutages()
    said = [outages.line(AWAY if now % 2 else WELL, float(now)) for now in range(120)]
    assert len(list(filter(None, said))) == 4


def test_events_of_the_snapshot_are_read_again(tmp_path: Path) -> None:
    events = RunEventLog(tmp_path / "events.jsonl", clock=lambda: 5.0)
    events.log_snapshot(WELL)
    events.log_snapshot(AWAY)
    found, broken = read_events(tmp_path / "events.jsonl")
    assert broken == 0
    assert [(event.kind, event.who) for event in found] == [("snapshot", "/mnt/nas")]
