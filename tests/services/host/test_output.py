"""What is printed may get lost, and ends nothing; an answer for a program stands alone."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from vedette_rl.storage.atomic_files import NO_ROOM
from vedette_services.host.output import _LossyFile, answer_alone

BEGIN = "import os, sys\nfrom vedette_services.host.output import *\n"


def run(program: str, *, shell: str = "{}") -> subprocess.CompletedProcess[str]:
    command = shell.format('"$0" -c "$1"')
    program = BEGIN + textwrap.dedent(program)
    return subprocess.run(
        ["sh", "-c", command, sys.executable, program], capture_output=True, text=True, timeout=20
    )


def test_a_reader_that_has_gone_stops_nothing() -> None:
    done = run(
        """
        tolerate_lost_output()
        for line in range(10_000):
            print("line", line)
        print("done", file=sys.stderr)
        """,
        shell="{} | head -n 1",
    )
    assert (done.stdout, done.stderr) == ("line 0\n", "done\n")


def test_code_that_prints_past_python_gets_no_error_once_the_reader_has_gone(
    tmp_path: Path,
) -> None:
    done = run(
        f"""
        import ctypes, pathlib
        tolerate_lost_output()
        with divert_output_past_python(pathlib.Path({str(tmp_path / "printed")!r})):
            for line in range(10_000):
                print("line", line)
                os.write(1, b"past Python\\n")
            libc = ctypes.CDLL(None)
            assert libc.puts(b"by C") >= 0 and libc.fflush(None) == 0
        print("done", file=sys.stderr)
        """,
        shell="{} | head -n 1",
    )
    assert (done.stdout, done.stderr) == ("line 0\n", "done\n")
    printed = (tmp_path / "printed").read_text().splitlines()
    assert (printed.count("past Python"), printed.count("by C")) == (10_000, 1)


def test_output_past_python_goes_where_it_went_before_once_it_is_not_diverted(
    tmp_path: Path,
) -> None:
    done = run(
        f"""
        import pathlib
        tolerate_lost_output()
        with divert_output_past_python(pathlib.Path({str(tmp_path / "printed")!r})):
            print("by Python")
            os.write(1, b"diverted\\n")
        os.write(1, b"past Python\\n")
        print("done")
        """
    )
    assert done.stdout == "by Python\npast Python\ndone\n"


def test_a_command_that_only_prints_may_end_then() -> None:
    done = run(
        """
        tolerate_lost_output(on_reader_gone=lambda: os._exit(0))
        while True:
            print("line")
        """,
        shell="{} | head -n 1",
    )
    assert (done.stdout, done.stderr) == ("line\n", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_is_opened_before_a_file_gets_its_number(closed: str) -> None:
    done = run(
        """
        open_closed_streams()
        number = os.open(os.devnull, os.O_WRONLY)
        print("lost")
        os.write(1, b"lost too")
        print("lost", file=sys.stderr)
        sys.exit(40 + number)
        """,
        shell="{} " + closed,
    )
    assert done.returncode > 42


def test_a_full_disk_is_an_error_where_it_is_not_to_be_lost() -> None:
    done = run("tolerate_lost_output(full_disk=False); print('x')", shell="{} > /dev/full")
    assert done.returncode != 0
    assert "No space left" in done.stderr


def test_a_file_loses_what_its_disk_has_no_room_for_only_where_that_is_tolerated() -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        tolerates = _LossyFile(full.fileno(), NO_ROOM, lambda: None)
        assert tolerates.write(b"xyz") == 3
        with pytest.raises(OSError, match="No space left"):
            _LossyFile(full.fileno(), (), lambda: None).write(b"xyz")


def test_a_file_is_left_as_it_is_where_its_full_disk_is_an_error(tmp_path: Path) -> None:
    for full_disk in (True, False):
        file = tmp_path / f"{full_disk}"
        code = f"tolerate_lost_output(full_disk={full_disk}); print(sys.stdout is sys.__stdout__)"
        run(code, shell=f"{{}} > {file}")
        assert file.read_text() == f"{not full_disk}\n"


def test_an_answer_is_all_of_the_output_whoever_prints() -> None:
    done = run("""
        import ctypes
        print("before")
        with answer_alone() as answer:
            print("by Python")
            os.write(1, b"past it\\n")
            ctypes.CDLL(None).puts(b"by C")
            print('{"a": 1}', file=answer)
            print("after")
        print("at the end")
        os.write(1, b"later\\n")
    """)
    assert done.stdout == 'before\n{"a": 1}\n'
    for words in ("by Python", "past it", "by C", "after", "at the end", "later"):
        assert words in done.stderr


def test_an_answer_into_a_stream_of_the_callers_own(capsys: pytest.CaptureFixture[str]) -> None:
    with answer_alone() as answer:
        print("by an environment")
        print(json.dumps({"a": 1}), file=answer)
    print("more")
    out, err = capsys.readouterr()
    assert (out, err) == ('{"a": 1}\nmore\n', "by an environment\n")
