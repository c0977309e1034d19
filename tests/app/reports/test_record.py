"""Run directories of all kinds are read: finished, running, just begun, damaged."""

import fcntl
import json
import os
from pathlib import Path

import pytest
from run_folders import write_summary

from vedette.reports import report_statistics, write_report
from vedette.reports.record import read_record
from vedette_services.errors import NotARunError


def test_a_run_that_ended_well_has_everything(run: Path) -> None:
    record = read_record(run)
    assert record.title == "dqn on CartPole-v1"
    assert record.exit_reason == "max_opts"
    assert record.summary.eval.best_return_mean == 5.0
    assert record.curves["train/loss"].steps.tolist() == [10, 20, 30, 40, 50]
    assert len(record.events) == 5
    assert record.notes == ("It is done: stop.max_opts is reached.",)


def test_a_running_run_has_a_note(run: Path) -> None:
    handle = os.open(run / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        record = read_record(run)
        assert record.running
        assert record.exit_reason == ""
        assert record.notes[0].startswith("It is running (snapshot of 20")
    finally:
        os.close(handle)
    assert not read_record(run).running


def test_a_killed_run_has_a_note_about_its_missing_exit_reason(run: Path) -> None:
    write_summary(run, best=5.0, exit_reason="", epoch=3)
    assert read_record(run).notes == (
        "It ended without an exit reason (killed, or the machine went down): "
        "the same command resumes at its last checkpoint.",
        "It was started 3 times; dashed lines in the curves show where it went on.",
    )


def test_a_failed_run_has_a_note_that_says_why(run: Path) -> None:
    write_summary(run, best=5.0, exit_reason="interrupted")
    failed = {"began_s": 1.0, "exit_reason": "failed", "failure": "no actor can play here"}
    (run / "provenance.json").write_text(json.dumps([failed]))
    record = read_record(run)
    assert (record.exit_reason, record.state) == ("failed", "failed")
    assert record.notes[0].startswith("It has failed: no actor can play here.")
    page = write_report([run]).read_text("utf-8")
    assert '<p class="note bad">It has failed' in page


def test_the_page_of_a_run_that_ended_says_what_failed_in_it(run: Path) -> None:
    actor = {"restarts": 2, "error": "failed 3 times, made again: RuntimeError: boom"}
    write_summary(run, best=5.0, managers=[{"id": "m", "failures": 3, "actors": [actor]}])
    page = write_report([run]).read_text("utf-8")
    assert "Failures: 3 of environments, made again; 2 of actors, started again." in page
    assert "m/0: failed 3 times, made again: RuntimeError: boom" in page


def test_a_run_that_has_not_begun_has_a_note(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("seed = 1\n")
    assert read_record(tmp_path).notes == ("It has not begun: nothing was recorded.",)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.toml", b"seed = ", "config.toml: not TOML"),
        ("config.toml", b"\xff\xfe", "config.toml: not TOML"),
        ("summary.json", b"{", "summary.json holds no summary"),
        ("summary.json", b"[1]", "summary.json holds no summary"),
        ("summary.json", b"[" * 100_000, "summary.json holds no summary"),
        ("events.jsonl", b"1\n2\n", "events.jsonl: 2 lines are damaged and left out"),
        ("records.csv", b"", ""),
        ("provenance.json", b"[", ""),
        ("provenance.json", b'[{"began_s": 1, "memory_bytes": "x"}]', "provenance.json is damaged"),
    ],
)
def test_a_damaged_file_is_a_note_and_the_rest_is_read(
    name: str, content: bytes, said: str, run: Path
) -> None:
    (run / name).write_bytes(content)
    record = read_record(run)
    assert "train/loss" in record.curves
    assert said in " | ".join(record.notes)


def test_a_missing_file_is_a_note(run: Path) -> None:
    for name in ("config.toml", "events.jsonl"):
        (run / name).unlink()
    notes = " | ".join(read_record(run).notes)
    assert "config.toml is not there" in notes
    assert "No timeline" in notes


def test_values_of_another_type_are_not_read_as_numbers(run: Path) -> None:
    (run / "summary.json").write_text('{"eval": "<b>", "env_steps": true, "managers": {"a": 1}}')
    record = read_record(run)
    assert record.summary.eval.best_return_mean is None
    assert record.summary.env_steps is None


def test_a_folder_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="not a run"):
        read_record(tmp_path)
    with pytest.raises(NotARunError, match="and no run below it"):
        report_statistics([tmp_path])
    with pytest.raises(NotARunError, match="there is no such folder"):
        report_statistics([tmp_path / "nowhere"])


def test_a_named_run_is_read_though_little_of_it_is_left(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("seed = 1\n")
    assert report_statistics([tmp_path])[0]["directories"] == [str(tmp_path)]
