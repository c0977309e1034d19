"""Logs stay bounded while a process appends to them, and one that was removed is said once."""

import os
from pathlib import Path

import pytest

from vedette.local import log_files
from vedette.local.log_files import LogFiles


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "LOG_MAX_BYTES", 10_000)
    monkeypatch.setattr(log_files, "LOG_KEPT_BYTES", 1000)


def test_the_newest_lines_of_a_large_log_stay_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "actors.log"
    writer = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # as a daemon has it
    os.write(writer, b"".join(b"line %05d\n" % number for number in range(1000)))
    said: list[str] = []
    LogFiles(said.append).check([log])
    os.write(writer, b"after\n")
    os.close(writer)
    head, *lines = log.read_text().splitlines()
    assert head.endswith("10 kB of earlier lines were left out of this log")
    assert lines == [*(f"line {number:05d}" for number in range(910, 1000)), "after"]
    assert not said


def test_a_log_within_its_bound_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "learner.log"
    log.write_bytes(b"x" * 10_000)
    LogFiles(pytest.fail).check([log])
    assert log.read_bytes() == b"x" * 10_000


def test_a_log_that_was_removed_is_said_once_each_time(tmp_path: Path) -> None:
    log = tmp_path / "log" / "actors.log"
    said: list[str] = []
    files = LogFiles(said.append)
    for _ in range(2):
        files.check([log])
    assert said == [f"{log} is gone: what is written to it is lost"]
    log.parent.mkdir()
    log.touch()
    files.check([log])
    log.unlink()
    files.check([log])
    assert len(said) == 2
