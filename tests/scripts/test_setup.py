"""scripts/setup installs the extras that it is given, scripts/setup_peer another program; both do
nothing where they are there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PYTHON = """\
#!/bin/bash
case "$2" in
    venv) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    pip) echo "$*" >>"{log}" ;;
    *) exec {python} "$@" ;;
esac
"""  # a Python whose pip notes each call in a line of its own


def test_every_extra_is_installed_once(tmp_path: Path) -> None:
    root, log, python = tmp_path / "checkout", tmp_path / "log", tmp_path / "python"
    for name in ("scripts/setup", "pyproject.toml", "deploy/requirements-x.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    shutil.copy(ROOT / "scripts" / "setup", root / "scripts" / "setup")
    python.write_text(_PYTHON.format(log=log, python=sys.executable))
    python.chmod(0o755)
    for extras in ([], ["dev", "mujoco"], ["mujoco"], ["box2d", "dev"], []):
        command = [root / "scripts" / "setup", *extras]
        subprocess.run(command, check=True, env={**os.environ, "PYTHON": str(python)})
    asked = ["checkout", "checkout[dev,mujoco]", "checkout[dev,mujoco,box2d]"]
    assert [Path(line.split()[-1]).name for line in log.read_text().splitlines()] == asked


def test_a_peer_gets_an_environment_of_its_own_once_and_an_unknown_one_is_refused(
    tmp_path: Path,
) -> None:
    root, log = tmp_path / "checkout", tmp_path / "log"
    for folder in ("scripts", ".venv/bin"):
        (root / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup_peer", root / "scripts" / "setup_peer")
    python = root / ".venv" / "bin" / "python"
    python.write_text(_PYTHON.format(log=log, python=sys.executable))
    python.chmod(0o755)
    for peer in ("sample-factory", "sample-factory", "stable-baselines3"):
        subprocess.run([root / "scripts" / "setup_peer", peer], check=True)
    calls = [line.split() for line in log.read_text().splitlines()]
    packages = [{word.partition("==")[0] for word in call} for call in calls]
    assert len(calls) == 2
    assert packages[0] >= {"torch", "sample-factory"}
    assert packages[1] >= {"torch", "stable-baselines3", "gymnasium[mujoco,box2d]"}
    assert (root / ".venv-sample-factory" / "bin" / "python").exists()
    refused = subprocess.run(
        [root / "scripts" / "setup_peer", "a2c"], check=False, capture_output=True, text=True
    )
    assert (refused.returncode, refused.stderr) == (2, "scripts/setup_peer: no peer a2c\n")
