"""What a process that ends says to the one that started it."""

import errno
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vedette_rl.errors import MapSpaceError
from vedette_services.errors import ConfigError, ManySettingsError, SettingError, error_message
from vedette_services.host.exit_report import ExitReportReader
from vedette_services.host.processes import spawn

CHILD = """
import sys
from pathlib import Path
from vedette_rl.errors import MapSpaceError
from vedette_services.host.exit_report import report_exit
with report_exit():
    {line}
"""


def end_of(line: str, log: Path, **environment: str) -> tuple[int, str, str]:
    """How a child ends in which that happens: its status, what it told us, and its log."""
    words = ExitReportReader()
    child = spawn(
        [sys.executable, "-c", CHILD.format(line=line)],
        environment={**words.environment, **environment},
        log=log,
        pass_fds=[words.fileno()],
    )
    words.close_child_end()
    status = child.wait(30.0)
    heard = words.read()
    words.close()
    return status, heard, log.read_text()


def test_an_error_of_ours_is_told_in_a_line_and_leaves_no_traceback(tmp_path: Path) -> None:
    line = "raise MapSpaceError(Path('/full/x.map'), '3 MB', 'No space left on device')"
    status, heard, log = end_of(line, tmp_path / "log")
    assert (status, log) == (1, "")
    assert heard == ("cannot make /full/x.map of 3 MB: No space left on device: make room in /full")
    _, again, log = end_of(line, tmp_path / "log", VEDETTE_TRACEBACK="1")
    assert again == heard
    assert "Traceback" in log


def test_a_disk_that_refuses_a_file_is_told_with_its_path(tmp_path: Path) -> None:
    status, heard, log = end_of("open('/nowhere/file')", tmp_path / "log")
    assert (status, heard, log) == (1, "/nowhere/file: No such file or directory", "")


def test_an_error_of_nobody_is_told_and_its_traceback_is_in_the_log(tmp_path: Path) -> None:
    status, heard, log = end_of("{}['x']", tmp_path / "log")
    assert (status, heard) == (1, "KeyError: 'x'")
    assert "Traceback" in log


def test_a_child_that_code_of_an_environment_ends_has_not_ended_well(tmp_path: Path) -> None:
    status, heard, log = end_of("sys.exit()", tmp_path / "log")
    assert (status, log) == (1, "")
    assert heard.startswith("its environment's code ended the process: SystemExit: it does not say")


def test_a_killed_child_says_nothing(tmp_path: Path) -> None:
    status, heard, _ = end_of("import os; os.kill(os.getpid(), 9)", tmp_path / "log")
    assert (status, heard) == (-9, "")


def test_one_started_by_hand_says_it_on_its_own_stderr() -> None:
    code = CHILD.format(line="open('/nowhere/file')")
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stderr == "vedette: /nowhere/file: No such file or directory\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y"), "/x/y: .*; make room there"),
        (OSError(errno.EACCES, "Permission denied", "/x"), "/x: .*; let this user read and write"),
        (IsADirectoryError(errno.EISDIR, "no", "/x"), "/x: no; put that folder away"),
        (ConfigError("a\nb"), "a b"),
        (ManySettingsError([SettingError("k", "w")]), "k: w"),
        (MapSpaceError(Path("/x/y"), "1 B", "full"), "cannot make /x/y of 1 B: full: make room"),
        (ValueError("z"), "ValueError: z"),
    ],
)
def test_every_error_has_a_sentence_of_one_line(error: Exception, said: str) -> None:
    import re

    assert re.match(said, error_message(error))


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("json.loads('{')", "JSONDecodeError: Expecting property name"),
        ("open('/nowhere/file')", "FileNotFoundError: /nowhere/file: No such file or directory"),
    ],
)
def test_an_error_of_a_users_code_names_the_line(tmp_path: Path, does: str, said: str) -> None:
    (tmp_path / "their_recorder.py").write_text(f"import json\n\n\ndef write():\n    {does}\n")
    spec = importlib.util.spec_from_file_location("theirs", tmp_path / "their_recorder.py")
    assert spec is not None
    assert spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    with pytest.raises((ValueError, OSError)) as raised:
        theirs.write()
    assert error_message(raised.value).startswith(said)
    assert error_message(raised.value).endswith(" (their_recorder.py:5, in write)")
