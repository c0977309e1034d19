"""The units of deploy/systemd are ones that systemd takes, and end as the daemons expect."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).resolve().parents[2] / "deploy" / "systemd").glob("*.service"))


def test_there_is_a_unit_for_each_daemon() -> None:
    assert [unit.stem for unit in UNITS] == ["vedette-actors", "vedette-learner"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    assert "ExecStart=/opt/vedette/bin/vedette " in text
    (tmp_path / unit.name).write_text(text.replace("/opt/vedette/bin/vedette", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_only_the_daemon_itself_is_told_to_stop_and_what_would_repeat_is_not_restarted(
    unit: Path,
) -> None:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.read(unit)
    service = found["Service"]
    assert service["KillMode"] == "mixed"
    assert service["RestartPreventExitStatus"] == "2 3"
    assert service["Restart"] == "on-failure"
