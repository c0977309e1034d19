"""`scripts/bench/run`: its commands, and the lines for a wrong one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.commands import app
from vedette.cli.app import execute

NAMES = [
    command.name or command.callback.__name__.replace("_", "-")
    for command in app.registered_commands
    if command.callback
]


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        execute(app, "scripts/bench/run", arguments)
    return left.value.code


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_says_its_options_and_prints_json_where_asked(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name, "--help") == 0
    text = capsys.readouterr().out
    assert f"Usage: scripts/bench/run {name} " in text
    assert "--json" in text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nope"], "no such command 'nope'; there are replay, "),
        (["fleet", "--seconds", "0"], "invalid value for '--seconds': must be at least 0.5"),
        (["fleet", "--env", "NoSuch-v0"], "NoSuch-v0"),
        (["peers", "nothing"], "invalid value for"),
    ],
)
def test_a_wrong_command_is_answered_by_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    text = capsys.readouterr().err
    assert line in text
    assert len(text.splitlines()) == 1


def test_a_benchmark_runs_as_a_program_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.commands", "replay", "--rounds=1", "--capacity=1000"]
    done = subprocess.run(
        [*command, "--json"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 1
