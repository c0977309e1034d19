"""Logs as JSON: an object a line, each with run, epoch, host, manager and actor."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from vedette_services.host.logs import FORMAT_VARIABLE, JsonFormatter, TextFormatter

DAEMON = """
import logging, os, subprocess, sys
from vedette_services.host.logs import set_log_context, set_up_logging
set_up_logging("json")
logging.getLogger("vedette.learner").info("before")
set_log_context(run="r1", epoch=3, manager="m")
print("two", "words")
print("half a line", end="", file=sys.stderr)
print(", and its end", file=sys.stderr)
logging.getLogger("vedette.actors").warning("one died", extra={"actor": 7})
code = (
    "from vedette_services.host.logs import *; "
    "set_up_logging(); set_log_context(actor=2); print('child')"
)
subprocess.run([sys.executable, "-c", code], check=True)
raise RuntimeError("the end")
"""


@pytest.fixture(scope="module")
def lines() -> list[dict[str, object]]:
    # Runs in this process have left their place to their children.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("VEDETTE_")}
    done = subprocess.run(
        [sys.executable, "-c", DAEMON], capture_output=True, text=True, timeout=60, env=clean
    )
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_every_line_is_an_object_that_says_where_it_comes_from(
    lines: list[dict[str, object]],
) -> None:
    assert len(lines) == 6
    for line in lines:
        assert {"time", "level", "logger", "run", "epoch", "host", "manager", "actor"} < set(line)
        assert line["host"] == socket.gethostname()
    assert (lines[0]["run"], lines[0]["epoch"]) == ("", 0)
    assert all((line["run"], line["epoch"]) == ("r1", 3) for line in lines[1:])


def test_what_is_printed_becomes_lines(lines: list[dict[str, object]]) -> None:
    assert (lines[1]["logger"], lines[1]["message"]) == ("stdout", "two words")
    assert (lines[2]["logger"], lines[2]["message"]) == ("stderr", "half a line, and its end")


def test_a_line_of_one_actor_names_it(lines: list[dict[str, object]]) -> None:
    assert lines[3]["actor"] == 7
    assert lines[1]["actor"] is None


def test_children_go_on_with_format_and_place_of_their_parent(
    lines: list[dict[str, object]],
) -> None:
    child = lines[4]
    assert (child["message"], child["run"], child["manager"], child["actor"]) == (
        "child",
        "r1",
        "m",
        2,
    )


def test_what_ends_a_daemon_is_one_line_with_its_traceback(lines: list[dict[str, object]]) -> None:
    last = lines[5]
    assert last["level"] == "critical"
    assert "Traceback" in str(last["message"])
    assert str(last["message"]).endswith("RuntimeError: the end")


def test_text_has_time_and_level_and_leaves_what_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(FORMAT_VARIABLE, raising=False)
    code = (
        "from vedette_services.host.logs import *; set_up_logging(); logging.info('x'); print('y')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "y\n"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO root: x\n", done.stderr)


def test_the_times_of_text_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.makeLogRecord({"msg": "x", "created": 0.25, "msecs": 250.0})
    assert TextFormatter("%(asctime)s %(message)s").format(record) == "1970-01-01T00:00:00.250Z x"


def test_times_are_utc_with_milliseconds() -> None:
    record = logging.makeLogRecord({"msg": "x", "created": 0.25, "msecs": 250.0})
    assert json.loads(JsonFormatter("h").format(record))["time"] == "1970-01-01T00:00:00.250Z"


def test_a_full_disk_under_a_log_ends_nobody(tmp_path: Path) -> None:
    code = """
import logging, resource, signal, sys
from vedette_services.host.logs import set_up_logging
set_up_logging()
print("there is room")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print("there is none")
logging.getLogger("vedette").warning("nor here")
sys.exit(3)
"""
    with (tmp_path / "log").open("ab") as log:
        argv = [sys.executable, "-c", code]
        done = subprocess.run(argv, stdout=log, stderr=log, timeout=60, check=False)
    assert done.returncode == 3
    assert (tmp_path / "log").read_text() == "there is room\n"
