"""What the tests of the replay share."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # `counting_rows` is both imported here and run as a child


@pytest.fixture
def start_inserting(tmp_path: Path) -> "Iterator[Callable[..., subprocess.Popen[str]]]":
    """Starts children that insert counting rows at full speed, and ends those left over."""
    children: list[subprocess.Popen[str]] = []

    def start(directory: Path, capacity: int, guard: int) -> "subprocess.Popen[str]":
        command = [sys.executable, str(HERE / "counting_rows.py"), str(directory)]
        command += [str(capacity), str(guard)]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate()
