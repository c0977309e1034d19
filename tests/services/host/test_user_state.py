"""The folder of this user's state: where it is, and when it is believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vedette_services.host.user_state import UserState


def state_in(monkeypatch: pytest.MonkeyPatch, **variables: str) -> UserState:
    for name in ("XDG_STATE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return UserState("begun")


def test_it_lies_in_the_folder_that_the_system_has_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = state_in(monkeypatch, HOME=str(tmp_path))
    assert home.folder == tmp_path / ".local" / "state" / "vedette" / "begun"
    named = state_in(monkeypatch, HOME="/nowhere", XDG_STATE_HOME=str(tmp_path / "x"))
    assert named.folder == tmp_path / "x" / "vedette" / "begun"
    relative = state_in(monkeypatch, XDG_STATE_HOME="x", HOME=str(tmp_path))
    assert relative.folder == home.folder


def test_what_is_written_is_read_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_in(monkeypatch, HOME=str(tmp_path))
    assert state.read("one.json") is None
    assert state.names("*.json") == []
    state.write("one.json", "é\n")
    assert state.read("one.json") == "é\n"
    assert state.names("*.json") == ["one.json"]


def test_without_a_home_nothing_is_read_or_written(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_in(monkeypatch)
    assert state.folder is None
    assert state.read("one") is None
    assert state.names("*") == []
    with pytest.raises(OSError, match="no home folder"):
        state.write("one", "")


@pytest.mark.skipif(os.name == "nt", reason="folders have no modes there")
def test_what_others_could_have_written_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_in(monkeypatch, HOME=str(tmp_path))
    state.write("one", "mine")
    assert state.folder is not None
    state.folder.chmod(0o770)
    assert state.read("one") is None
    assert state.names("*") == []
    with pytest.raises(OSError, match="open to others"):
        state.write("two", "")
    state.folder.chmod(0o700)
    assert state.read("one") == "mine"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives away")
def test_a_home_of_another_user_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "theirs"
    home.mkdir()
    os.chown(home, 12345, 12345)
    assert state_in(monkeypatch, HOME=str(home)).folder is None
    mine = state_in(monkeypatch, HOME=str(tmp_path))
    mine.write("one", "")
    assert mine.folder is not None
    os.chown(mine.folder / "one", 12345, 12345)
    assert mine.read("one") is None
