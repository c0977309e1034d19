import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vedette_rl.errors import ReplayFormatError, UnknownEnvironmentError
from vedette_services.cli.app import exit_status, main, sentences
from vedette_services.cli.options import split_arguments
from vedette_services.errors import NoAnswerError, RefusedError, UsageError

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def vedette(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a command in an empty folder: its exit status, and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in os.environ if name.startswith("VEDETTE_")]:
        monkeypatch.delenv(name)

    def run(*arguments: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out + said.err

    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--env", "NoSuchEnv-v9"], "env.id: cannot make environment 'NoSuchEnv-v9'"),
        (["run", "--agent", "nope"], "agent.name: unknown agent 'nope'"),
        (["run", "--set", "learner.sync_intervall=3"], "did you mean learner.sync_interval?"),
        (["run", "learner.sync_interval=abc"], "must be a whole number"),
        (["run", "--set", "nonsense"], "write KEY=VALUE"),
        (["run", "broken.toml"], "broken.toml: not TOML"),
        (["run", "missing.toml"], "missing.toml: no such file"),
        (["run", "a.toml", "b.toml"], "one file is read"),
        (["run", "--set", "replay.capacity=10"], "replay.capacity: 10 samples can never hold"),
        (["run", "--set", "replay.capacity=100000000000"], "replay"),
        (["run", "--set", "agent.batch_size=200000"], "fewer than agent.batch_size's 200,000"),
        (["run", "--set", "actors.n_buffer=1000000", "actors.window_bytes=1000"], "actors.window"),
        (["run", "--agent", "sac", "--env", "CartPole-v1"], "agent.name: agent 'sac' takes"),
        (["run", "--agent", "dqn", "--env", "Pendulum-v1"], "agent.name: agent 'dqn' takes"),
        (["run", "agent.network=nopkg:Net"], "agent.network is 'nopkg:Net': there is no module"),
        (["run", "agent.network=nope"], "agent.network: must be 'auto', 'mlp', 'cnn' or module"),
        (["run", "--set", 'learner.recorders=["nopkg:R"]'], "learner.recorders is 'nopkg:R'"),
        (["run", "actors.step_processor=nopkg:S"], "actors.step_processor is 'nopkg:S'"),
        (["run", "--out", "file"], "--out file: file is a file; name a folder"),
        (["run", "--out", "file/below"], "file is a file"),
        (["run", "--frobnicate"], "--frobnicate"),
        (["run", "learner.eval_interval=0"], "stop.target_return: is never reached"),
        (["learner", "--bind", "0.0.0.0:0"], "port 0"),
        (["learner", "--bind", "0.0.0.0:6000"], "--insecure"),
        (["learner", "--bind", "0.0.0.0:6000"], "vedette keys new"),
        (["learner", "--keys", "nothing"], "nothing: holds no keys; make them"),
        (["learner", "--keys", "nothing", "--insecure"], "say opposite things"),
        (["actors", "--learner", "host", "--keys", "nothing"], "nothing: holds no keys"),
        (["status", "--keys", "nothing"], "nothing: holds no keys"),
        (["doctor", "--learner", "host", "--keys", "nothing"], "nothing: holds no keys"),
        (["keys", "new", "keys", "--actors", "a/b"], "'a/b': is no name"),
        (["keys", "add", "nothing", "a"], "nothing: holds no keys"),
        (["eval", "nothing"], "nothing: not a run, it has no config.toml"),
        (["eval", "file"], "file: not a run"),
        (["export", "nothing", "--format", "onnx", "--out", "x"], "nothing: not a run"),
        (["actors"], "--learner"),
        (["actors", "--learner", "not an address"], "'not an address'"),
        (["actors", "--learner", "host", "--count", "0"], "--count"),
        (["actors", "--learner", "host", "--id", "a b"], "--id: 'a b'"),
        (["status", "--learner", "a:b:c"], "address 'a:b:c'"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_wrong_usage_is_refused_with_status_2_and_says_why(
    vedette: Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("broken.toml", "a.toml", "b.toml"):
        (tmp_path / name).write_text("[learner\nx = 1")
    status, text = vedette(*arguments)
    assert status == 2
    assert said in text
    assert "Traceback" not in text
    assert len(text.splitlines()) <= 5
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "command", ["run", "learner", "actors", "eval", "status", "export", "doctor"]
)
def test_help_teaches_by_an_example(vedette: Run, command: str) -> None:
    status, text = vedette(command, "--help")
    assert status == 0
    assert f"\n  vedette {command}" in text


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
    assert sentences(ValueError("a\nb")) == ["ValueError: a b (VEDETTE_TRACEBACK=1 shows where)"]


def test_bare_arguments_are_a_file_and_settings(tmp_path: Path) -> None:
    odd = tmp_path / "a=b.toml"
    odd.write_text("")
    assert split_arguments(["x.toml", "a.b=c"]) == (Path("x.toml"), ["a.b=c"])
    assert split_arguments([str(odd)]) == (odd, [])


def test_status_and_help_load_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['vedette', '--help']\n"
        "from vedette_services.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import vedette_services.status, vedette_services.live\n"
        "heavy = {'torch', 'gymnasium', 'tensorboard'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
