"""``--help``: what a first run needs stands first, the rest below titles."""

from collections.abc import Callable

import pytest

from vedette.cli.app import app
from vedette.cli.grouped_help import first_sentence

Run = Callable[..., tuple[int, str]]

COMMANDS = [command.name or "" for command in app.registered_commands]


def sections(text: str) -> dict[str, list[str]]:
    """The first words of the rows below each title."""
    found: dict[str, list[str]] = {}
    rows: list[str] = []
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            rows = found.setdefault(line.rstrip(":"), [])
        elif line.startswith("  ") and line[2:3].strip():
            rows.append(line.split()[0])
    return found


def test_the_commands_come_first_and_in_groups(vedette: Run) -> None:
    status, text = vedette("--help")
    assert status == 0
    found = sections(text)
    assert [*found] == ["Train", "Look at runs", "Use a policy", "Set up", "Options"]
    assert found["Train"][:3] == ["run", "learner", "actors"]
    listed = [name for title in found if title != "Options" for name in found[title]]
    assert len(listed) == len(app.registered_commands) + len(app.registered_groups)


def test_the_line_of_each_command_is_a_whole_sentence(vedette: Run) -> None:
    _, text = vedette("--help")
    assert "..." not in text.partition("Train:")[2]
    for command in app.registered_commands:
        sentence = first_sentence(command.callback)
        assert sentence[0].isupper()
        assert len(sentence) <= 60, sentence


def test_what_a_first_run_needs_is_the_first_group_of_its_options(vedette: Run) -> None:
    _, text = vedette("run", "--help")
    found = sections(text)
    assert [*found][:2] == ["Arguments", "Options"]
    assert found["Options"] == ["--env", "--agent", "--out", "--set", "--in-process", "-h,"]
    assert found["Start again or resume"] == ["--init-from", "--fresh", "--force", "--new-replay"]
    assert found["Several runs"] == ["--seeds", "--sweep", "--jobs"]


def test_several_runs_are_as_many_at_a_time_as_the_cores_allow(vedette: Run) -> None:
    _, text = vedette("run", "--help")
    assert "one after another" not in text
    assert text.count("as the cores allow") == 2  # of the example, and of --jobs


@pytest.mark.parametrize("command", ["run", "learner", "actors", "status", "collect", "dashboard"])
def test_no_group_is_longer_than_a_glance(vedette: Run, command: str) -> None:
    _, text = vedette(command, "--help")
    assert max(len(rows) for rows in sections(text).values()) <= 10


@pytest.mark.parametrize("command", COMMANDS)
def test_no_type_of_python_is_shown(vedette: Run, command: str) -> None:
    _, text = vedette(command, "--help")
    for kind in ("<int", "<str", "<float", "list[", "<path"):
        assert kind not in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal_of_eighty_columns(
    vedette: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, text = vedette(command, "--help")
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_the_usage_shows_arguments_as_they_are_written(vedette: Run) -> None:
    _, text = vedette("status", "--help")
    assert text.startswith("Usage: vedette status [OPTIONS] [RUN]\n")
