"""What the tests of the replay share."""

import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import counting_rows
import pytest

from vedette_rl.replay.ring import RingWriter

if TYPE_CHECKING:
    from kinds_of_rows import Machine

SUPPORT = Path(counting_rows.__file__).parent


@pytest.fixture(autouse=True)
def _writers_left_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Writers that a test leaves as a kill does: their files are closed, as a kill closes them."""
    made: list[RingWriter] = []
    init = RingWriter.__init__

    def remember(writer: RingWriter, *arguments: Any, **settings: Any) -> None:
        made.append(writer)
        init(writer, *arguments, **settings)

    monkeypatch.setattr(RingWriter, "__init__", remember)
    yield
    monkeypatch.undo()
    for writer in made:
        writer._held.close()


@pytest.fixture
def start_program() -> "Iterator[Callable[..., subprocess.Popen[str]]]":
    """Starts programs of `tests/support` with arguments, and ends those left over."""
    children: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: object) -> "subprocess.Popen[str]":
        command = [sys.executable, str(SUPPORT / program), *map(str, arguments)]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def start_inserting(
    start_program: "Callable[..., subprocess.Popen[str]]",
) -> "Callable[..., subprocess.Popen[str]]":
    """Starts a child that inserts counting rows at full speed: ``(directory, capacity, guard)``."""
    return functools.partial(start_program, "counting_rows.py")


@pytest.fixture
def start_counting(
    start_program: "Callable[..., subprocess.Popen[str]]",
) -> "Callable[..., subprocess.Popen[str]]":
    """The same with counting frames: ``(directory)``."""
    return functools.partial(start_program, "counting_frames.py")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> "Machine":
    """A machine at its first start."""
    from kinds_of_rows import Machine

    return Machine(monkeypatch)
