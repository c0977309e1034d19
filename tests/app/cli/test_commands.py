import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vedette.cli.app import error_lines, exit_status
from vedette.cli.options import split_arguments
from vedette.cli.run import path_hint
from vedette_rl.errors import ReplayFormatError, UnknownEnvironmentError
from vedette_services.config import load_config
from vedette_services.errors import NoAnswerError, RefusedError, UsageError

Run = Callable[..., tuple[int, str]]


@pytest.mark.parametrize(
    "command", ["run", "learner", "actors", "eval", "status", "export", "doctor", "config"]
)
def test_help_teaches_by_an_example(vedette: Run, command: str) -> None:
    status, text = vedette(command, "--help")
    assert status == 0
    assert f"\n  vedette {command}" in text


@pytest.mark.parametrize("command", ["keys new", "keys add"])
def test_help_of_a_part_teaches_by_an_example_too(vedette: Run, command: str) -> None:
    _, text = vedette(*command.split(), "--help")
    assert f"\n  vedette {command}" in text


def test_nothing_at_all_shows_the_commands(vedette: Run) -> None:
    status, text = vedette()
    assert status == 2
    assert text.startswith("Usage: vedette")
    assert "status" in text


def test_the_package_is_the_command_where_that_is_not_on_the_path() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "vedette", "list", "nonsense"], capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("vedette: ")


@pytest.mark.parametrize("given", [["--out", ""], ["--out="]])
def test_an_option_of_nothing_is_refused(vedette: Run, given: list[str]) -> None:
    status, text = vedette("run", *given, "--env", "CartPole-v1")
    assert (status, text) == (2, "vedette: --out: its value is empty; give one or leave it out\n")


def test_a_setting_may_be_empty(vedette: Run) -> None:
    status, text = vedette("config", "--set=replay.directory=", "--env", "CartPole-v1")
    assert status == 0, text


def test_version_is_said(vedette: Run) -> None:
    status, text = vedette("--version")
    assert status == 0
    assert text.startswith("vedette")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("x"), 2),
        (RefusedError("x"), 3),
        (NoAnswerError("here", 1), 1),
        (UnknownEnvironmentError("x", "y"), 2),
        (ReplayFormatError("x"), 1),
        (OSError("x"), 1),
    ],
)
def test_an_error_knows_its_exit_status(error: Exception, status: int) -> None:
    assert exit_status(error) == status


def test_a_strange_error_is_one_line_that_says_how_to_see_more() -> None:
    assert error_lines(ValueError("a\nb")) == ["ValueError: a b (VEDETTE_TRACEBACK=1 shows where)"]


def test_bare_arguments_are_a_file_and_settings(tmp_path: Path) -> None:
    odd = tmp_path / "a=b.toml"
    odd.write_text("")
    assert split_arguments(["x.toml", "a.b=c"]) == (Path("x.toml"), ["a.b=c"])
    assert split_arguments([str(odd)]) == (odd, [])


def test_status_and_help_load_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['vedette', '--help']\n"
        "from vedette.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import vedette_services.status.client, vedette_services.run.learner_location\n"
        "import vedette.live\n"
        "heavy = {'torch', 'gymnasium', 'tensorboard'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_keys_are_made_for_the_hosts_that_are_named(vedette: Run, tmp_path: Path) -> None:
    status, said = vedette("keys", "new", "keys", "gpu-2", "lab-7", "--actors", "gpu-3")
    assert status == 0
    assert [line.split()[1] for line in said.splitlines()[1:]] == [
        f"keys/hosts/{name}" for name in ("gpu-2", "lab-7", "gpu-3")
    ]
    assert sorted(p.name for p in (tmp_path / "keys" / "admitted").iterdir()) == [
        "gpu-2.toml",
        "gpu-3.toml",
        "lab-7.toml",
    ]


def test_who_has_no_vedette_on_the_path_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "activate").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    assert path_hint().startswith(f"(`. {tmp_path}/bin/activate` puts vedette")
    (tmp_path / "bin" / "vedette").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert path_hint() == ""


def test_a_run_that_nothing_stops_says_so() -> None:
    endless = load_config(settings=["stop.target_return=none"], environment={}).decided
    assert endless == [
        "no stop condition is set: it goes on until Ctrl-C; stop.max_env_steps=1e6 ends it"
    ]
    assert load_config(environment={}).decided == []


@pytest.mark.parametrize(
    ("cores", "learner", "count"),
    [
        (8, "127.0.0.1", 7),
        (8, "localhost:7000", 7),
        (8, "[::1]:5555", 7),
        (8, "gpu.example.org", 8),
        (8, "@runs/shared", 8),
        (1, "127.0.0.1", 1),
    ],
)
def test_actors_on_the_learners_host_leave_it_a_core(
    vedette: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    cores: int,
    learner: str,
    count: int,
) -> None:
    started: list[int] = []
    caplog.set_level("INFO")
    monkeypatch.setattr("vedette_services.host.logs.set_up_logging", lambda _: None)
    monkeypatch.setattr("vedette_services.host.system.count_cores", lambda: cores)
    monkeypatch.setattr(
        "vedette_services.actors.manager.run_manager",
        lambda _, *, count, **__: started.append(count),
    )
    status, _ = vedette("actors", "--learner", learner)
    assert (status, started) == (0, [count])
    assert f"--count {count}: one a core" in caplog.text
    vedette("actors", "--learner", learner, "--count", 3)
    assert started[1:] == [3]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--from-snapshot: add --out DIR"),
        (["--out", "new", "--new-replay"], "leave --fresh and --new-replay out"),
        (["--out", "new"], "--from-snapshot .*/nowhere: .*No such file or directory"),
        (["--out", "full"], "full is there already"),
        (["--out", "new", "learner.snapshot=x"], "leave learner.snapshot out: the run goes on"),
        (["--out", "new", "--set", "replay.directory=x"], "leave replay.directory out"),
        (["--out", "new", "learner.snapshot=nowhere"], "nowhere: No such file or directory"),
    ],
)
def test_a_start_from_a_snapshot_that_cannot_be_says_why(
    vedette: Run, options: list[str], said: str
) -> None:
    Path("full").mkdir()
    Path("full/file").touch()
    status, text = vedette("learner", "--from-snapshot", "nowhere", *options)
    assert status == 2
    assert re.search(said, text), text
    assert not Path("new").exists()


@pytest.mark.parametrize("place", ["new", "new/snapshot", "rows/snapshot"])
def test_a_snapshot_in_its_own_run_is_refused(vedette: Run, place: str) -> None:
    settings = (f"learner.snapshot={place}", "replay.directory=rows")
    status, text = vedette("learner", "--env", "CartPole-v1", "--out", "new", *settings)
    assert status == 2
    assert f"{place} is in " in text
    assert "of which it is to be a copy; name a folder on another disk" in text


def test_what_contradicts_a_snapshot_is_refused(vedette: Run) -> None:
    settings = ("learner.snapshot=there", "replay.sync_interval_s=0")
    status, text = vedette("learner", "--env", "CartPole-v1", "--out", "new", *settings)
    assert status == 2
    assert "replay.sync_interval_s: is 0, and learner.snapshot copies what was synced" in text
