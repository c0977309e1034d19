"""What a killed process was making is removed by the next one that makes the same; that of a
process which runs, or of which that cannot be told, stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vedette_rl.storage import unfinished
from vedette_rl.storage.atomic_files import create_file, replace_file, replacing
from vedette_rl.storage.process_identity import machine_number, process_began
from vedette_rl.storage.unfinished import (
    is_unfinished,
    remove_ended,
    remove_unfinished,
    unfinished_of,
    unfinished_path,
)

MAKES = """
import sys
from pathlib import Path
from vedette_rl.storage.atomic_files import replacing
with replacing(Path(sys.argv[1])) as aside:
    (aside / "inner").mkdir(parents=True)
    (aside / "inner" / "half").write_text("half")
    print(aside, flush=True)
    sys.stdin.read()
"""


class Maker:
    """A process that makes a folder and does not finish."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", MAKES, str(path)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.aside = Path(self.process.stdout.readline().strip())

    def kill9(self) -> None:
        """Kill it; nobody has asked yet how it ended."""
        self.process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[Maker]:
    made = Maker(tmp_path / "data")
    yield made
    made.close()


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_what_a_killed_process_left_is_removed_by_the_next_that_makes_it(
    tmp_path: Path, maker: Maker, is_waited_for: bool
) -> None:
    maker.kill9()
    if is_waited_for:
        maker.process.wait()
    assert (maker.aside / "inner" / "half").exists()
    (found,) = unfinished_of(tmp_path / "data")
    assert (found.path, found.pid, found.runs) == (maker.aside, maker.process.pid, False)
    replace_file(tmp_path / "date", "of another file")
    assert maker.aside.exists()
    with replacing(tmp_path / "data") as aside:
        assert names(tmp_path) == {"date"}
        aside.mkdir()
    assert names(tmp_path) == {"data", "date"}


def test_what_a_process_makes_that_runs_stays(tmp_path: Path, maker: Maker) -> None:
    (found,) = unfinished_of(tmp_path / "data")
    assert found.runs
    assert remove_ended(tmp_path / "data") == []
    replace_file(tmp_path / "data", "mine")
    assert (maker.aside / "inner" / "half").exists()


def test_a_number_that_another_process_has_now_is_no_reason_to_keep_it(tmp_path: Path) -> None:
    pid = os.getpid()
    before = tmp_path / f".a.txt.{pid}.{process_began(pid) - 1}.{machine_number()}.new"
    before.touch()
    create_file(tmp_path / "a.txt", "x")
    assert names(tmp_path) == {"a.txt"}


@pytest.mark.parametrize(
    "name",
    [
        ".a.txt.{pid}.1.{other}.new",  # another host, container or start of this machine
        ".a.txt.{pid}.new",  # an earlier release: it says no host
        ".a.txt.2.{pid}.1.{machine}.new",  # of `a.txt.2`
        ".other.{pid}.1.{machine}.new",
        ".a.txt.{pid}.1.{machine}.new.bak",
        ".a.txt.-1.1.{machine}.new",
        ".a.txt.x.1.{machine}.new",
        "a.txt.{pid}.1.{machine}.new",
    ],
)
def test_what_cannot_be_told_and_what_is_no_such_name_stays(tmp_path: Path, name: str) -> None:
    machine = machine_number()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = tmp_path / name.format(pid=gone.pid, machine=machine, other=machine ^ 1)
    left.touch()
    assert remove_ended(tmp_path / "a.txt") == []
    replace_file(tmp_path / "a.txt", "x")
    assert names(tmp_path) == {"a.txt", left.name}


def test_a_machine_that_says_nothing_of_itself_is_like_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vedette_rl.storage import process_identity

    monkeypatch.setattr(process_identity, "boot_id", lambda: bytes(16))
    ask = process_identity.machine_number.__wrapped__
    assert ask() != ask()


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "kept").touch()
    pid = os.getpid()
    (tmp_path / f".a.{pid}.1.{machine_number()}.new").symlink_to(mine)
    assert len(remove_ended(tmp_path / "a")) == 1
    assert names(tmp_path) == {"mine"}
    assert names(mine) == {"kept"}


def test_two_hosts_that_number_their_processes_alike_make_it_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replacing(tmp_path / "a.txt") as here:
        here.write_text("here")
        with monkeypatch.context() as other:
            other.setattr(unfinished, "machine_number", lambda: 7)
            replace_file(tmp_path / "a.txt", "there")
        assert here.read_text() == "here"
    assert (tmp_path / "a.txt").read_text() == "here"


def test_where_one_process_writes_all_that_is_left_is_removed_and_nothing_else(
    tmp_path: Path,
) -> None:
    (tmp_path / ".a.txt.99.new").touch()
    (tmp_path / ".7.99.5.12.new").mkdir()
    (tmp_path / ".7.99.5.12.new" / "half").touch()
    (tmp_path / ".7.99.5.12.old").mkdir()
    (tmp_path / "mine.new").touch()
    (tmp_path / ".hidden").touch()
    remove_unfinished(tmp_path)
    assert names(tmp_path) == {"mine.new", ".hidden"}


def test_the_name_is_one_that_earlier_releases_take_for_unfinished(tmp_path: Path) -> None:
    name = unfinished_path(tmp_path / "a.txt").name
    assert is_unfinished(name)
    assert is_unfinished(".a.txt.99.old")
    assert not is_unfinished("a.txt")
