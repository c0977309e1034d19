"""A command in a folder that was removed."""

import os
import subprocess
import sys
from pathlib import Path


def test_a_folder_that_was_removed_is_said_in_a_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = [sys.executable, "-m", "vedette.cli", "runs"]
    remove = ["sh", "-c", 'rmdir "$0" && exec "$@"', str(gone), *command]
    done = subprocess.run(remove, cwd=gone, env=os.environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "vedette: the current folder was removed: change to another one\n"
