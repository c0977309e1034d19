"""What the operator of an actor's host says of its outbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import vedette
from vedette_services.actors.outbox.settings import OutboxSettings
from vedette_services.actors.outbox.syncing import synced_at_intervals
from vedette_services.errors import ArgumentError


@pytest.mark.parametrize("wrong", [{"max_bytes": 1000}, {"sync_s": 0.0}, {"sync_s": float("inf")}])
def test_bounds_without_sense_are_refused(wrong: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="an outbox"):
        OutboxSettings(tmp_path, **wrong)  # type: ignore[arg-type]  # numbers, of one or the other


@pytest.mark.parametrize("wrong", ["", 5, b"outbox", {"directory": "outbox"}])
def test_what_is_no_path_of_a_folder_is_refused(wrong: Any) -> None:
    space = gym.spaces.Discrete(2)
    with pytest.raises(ArgumentError, match="outbox: it is the path of a folder, not"):
        vedette.Actor("127.0.0.1:5555", observation_space=space, action_space=space, outbox=wrong)


def test_the_folder_may_be_a_string(tmp_path: Path) -> None:
    OutboxSettings(str(tmp_path / "new")).open().close()
    assert (tmp_path / "new" / "lock").exists()


def test_an_outbox_is_synced_beside_its_manager_and_at_the_end(tmp_path: Path) -> None:
    settings = vedette.OutboxSettings(tmp_path / "new", sync_s=1e3)
    files = settings.open()
    with synced_at_intervals(files, settings.sync_s):
        session = files.begin("m", "run", "0123456789abcdef", 7)
        batch = files.append(session, 0, 1, 1, 4, 4, b"payload")
        assert not batch.synced
    assert batch.synced
    assert settings.open().sessions[0].end == 1, "the folder is free again"
