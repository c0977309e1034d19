"""A run's directory: that its folders can be written."""

import os
from pathlib import Path

import pytest

from vedette_services.errors import SettingError
from vedette_services.run.directory import RunDirectory


def test_a_folder_of_another_user_is_found_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path / "run")
    run.make()
    access = os.access
    monkeypatch.setattr(  # root may write everything
        os, "access", lambda path, mode: path != run.checkpoints and access(path, mode)
    )
    with pytest.raises(SettingError, match="checkpoints cannot be written by this user"):
        run.make()
