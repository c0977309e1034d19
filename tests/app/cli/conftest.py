"""Commands as a person gives them, in a folder of their own."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vedette.cli.app import main

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
