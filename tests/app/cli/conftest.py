"""Commands as a person gives them, in a folder of their own."""

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from local_probe import LocalProcess  # of tests/support

from vedette.cli.app import main
from vedette_services.host import probe_process, slow_calls

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def probed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command makes its environment in this process: another takes half a second to load."""
    monkeypatch.setattr(probe_process, "ProbeProcess", LocalProcess)


@pytest.fixture
def vedette(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a command in an empty folder: its exit status, and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # A busy machine makes environments slowly; that line is tested in `test_env_probe`.
    monkeypatch.setattr(slow_calls, "SAY_AFTER_S", math.inf)
    for name in [name for name in os.environ if name.startswith("VEDETTE_")]:
        monkeypatch.delenv(name)

    def run(*arguments: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out + said.err

    return run
