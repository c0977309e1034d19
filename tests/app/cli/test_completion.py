"""The shell's completion."""

from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from vedette.cli.app import app, main
from vedette.cli.options import Agent
from vedette_rl.agents.registry import BUILT_IN


def offered(*words: str) -> list[str]:
    """Return what bash gets for the last word."""
    typed = ["vedette", *words]
    ended = CliRunner().invoke(
        app,
        [],
        prog_name="vedette",
        env={
            "_VEDETTE_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(typed),
            "COMP_CWORD": str(len(typed) - 1),
        },
    )
    return ended.output.split()


def test_commands_agents_and_environments_are_completed() -> None:
    assert offered("sta") == ["status"]
    assert offered("run", "--agent", "") == [*BUILT_IN]
    assert offered("run", "--env", "CartPole")[0] == "CartPole-v1"
    assert "ALE/Pong-v5" in offered("run", "--env", "ALE/")


def test_the_help_of_agent_names_all_that_come_with_us() -> None:
    _, option = get_args(Agent)
    assert option.help.startswith(f"{', '.join(BUILT_IN)} or my_pkg.agents:MyAgent")


def test_keys_of_the_configuration_are_completed() -> None:
    assert offered("run", "--set", "learner.sy") == ["learner.sync_interval="]
    assert "agent.kappa=" in offered("run", "--set", "agent.k")


def test_files_and_settings_are_completed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "replay.toml").write_text("")
    assert offered("config", "rep")[:2] == ["replay.toml", "replay.capacity="]


def test_a_shell_that_completes_a_word_gets_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("_VEDETTE_COMPLETE", "complete_bash"), ("COMP_WORDS", "vedette sta")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 0
    assert capsys.readouterr() == ("status\n", "")
