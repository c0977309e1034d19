"""`vedette dashboard`: what it prints, what it refuses, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from child_process import child_process  # of tests/support

Run = Callable[..., tuple[int, str]]


@contextmanager
def dashboard(place: Path, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start the command; gives the process and its first line."""
    command = [sys.executable, "-m", "vedette.cli", "dashboard", str(place), "--port", "0"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("VEDETTE_")}
    with child_process(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline()


def test_it_serves_until_ctrl_c_and_ends_with_0(tmp_path: Path) -> None:
    with dashboard(tmp_path) as (process, line):
        found = re.fullmatch(rf"{tmp_path}: (http://127\.0\.0\.1:\d+/) \(Ctrl-C ends it\)\n", line)
        assert found
        with urllib.request.urlopen(found[1], timeout=30) as page:
            assert "There is no run yet." in page.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_beyond_this_machine_the_url_has_a_token(tmp_path: Path) -> None:
    with dashboard(tmp_path, "--bind", "0.0.0.0") as (_, line):
        found = re.search(r"http://[^/]+:(\d+)/\?token=([\w-]{32}) ", line)
        assert found
        url = f"http://127.0.0.1:{found[1]}/"
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(url, timeout=30)
        refused.value.close()
        cookies = urllib.request.HTTPCookieProcessor()
        with urllib.request.build_opener(cookies).open(f"{url}?token={found[2]}") as page:
            assert page.status == 200


def test_a_taken_port_is_one_line(vedette: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, text = vedette("dashboard", tmp_path, "--port", port)
    assert status == 2
    assert text == (
        f"vedette: --bind 127.0.0.1 --port {port}: Address already in use; "
        "choose another --port; 0 is any that is free\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: there is no such folder"),
        ([".", "--bind", "0.0.0.0:8600"], "this is an address alone; give --port N beside it"),
        ([".", "--bind", "no.such.invalid"], "host 'no.such.invalid' does not resolve"),
        ([".", "--bind", "192.0.2.1"], "Cannot assign requested address"),
        ([".", "--port", "70000"], "'--port'"),
        ([".", "--learner", "127.0.0.1"], "give one of them"),
        (["--learner", "no.such.invalid"], "host 'no.such.invalid' does not resolve"),
        (["--learner", "127.0.0.1", "--keys", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_shown_is_one_line(vedette: Run, arguments: list[str], said: str) -> None:
    status, text = vedette("dashboard", *arguments)
    assert status == 2
    assert said in text
    assert text.count("\n") == 1
