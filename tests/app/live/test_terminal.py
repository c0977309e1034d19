"""A view on a real terminal, under a shell with job control: keys, Ctrl-Z, and every end."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vedette.live.terminal import TerminalSession

PROGRAM = """
import os, sys, time
sys.path[:0] = {path!r}
from fleets import fleet, manager
from vedette.live import view_for, views
views.LINE_EVERY_S = 0.2
views.EVALUATION_EVERY_S = 0.0
whole, end = sys.argv[1] == "whole", sys.argv[2]
print(os.getpid(), file=open("pid", "w"), flush=True)
with view_for("", whole=whole) as view:
    for version in range(2000):
        status = {{"version": version, "return_mean": 1.0, "return_std": 0.0, "episodes": 5}}
        view.show(fleet([manager(0)], eval=status, seconds=float(version)))
        time.sleep(0.03)
        if version == 20 and end == "ends":
            break
        if version == 10 and end == "raises":
            raise ValueError("a fault")
        if version == 10 and end == "leaves":
            view.release()
            os._exit(1)
"""
_JOIN = (  # a session of its own on this terminal, then the shell in its place
    "import fcntl, os, sys, termios\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "os.execv('/bin/sh', ['sh', '-i'])"
)


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, place: Path) -> None:
        self._terminal, slave = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "PS1": "ready> "}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _JOIN],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=place,
            env={**environment, "LINES": "24", "COLUMNS": "80"},
            start_new_session=True,
        )
        os.close(slave)
        self.text = ""
        self.wait_for("ready> ")

    def type(self, text: str) -> None:
        """Press keys."""
        self.text = ""
        os.write(self._terminal, text.encode())

    def wait_for(self, pattern: str, timeout_s: float = 20.0) -> str:
        """Read until the pattern is found since the last keys; returns what came."""
        deadline = time.monotonic() + timeout_s
        while not re.search(pattern, self.text, re.S):
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.text[-2000:]!r}"
            if select.select([self._terminal], [], [], left)[0]:
                self.text += os.read(self._terminal, 65536).decode("utf-8", "replace")
        return self.text

    def run(self, command: str, pattern: str) -> str:
        """Give a command and wait for its output."""
        self.type(f"{command}\n")
        return self.wait_for(pattern)

    def assert_is_as_before(self) -> None:
        """The terminal echoes and gives lines."""
        modes = self.run("stty -a; echo o''k", "ok\r\n")
        assert re.search(r"(?<!-)\bicanon\b", modes)
        assert re.search(r"(?<!-)\becho\b", modes)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        os.close(self._terminal)  # ends the jobs: their terminal is gone


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    beside = str(Path(__file__).parent)
    (tmp_path / "view.py").write_text(PROGRAM.format(path=[beside, *sys.path]))
    made = Shell(tmp_path)
    yield made
    made.close()


def begin(shell: Shell, how: str, end: str) -> None:
    """Run the view until it is drawn."""
    shell.run(f"{sys.executable} view.py {how} {end}", "evaluation 1.0.*Ctrl-C")


def cursor_is_shown(text: str) -> bool:
    return text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_key_explains_the_words_and_another_goes_back(shell: Shell) -> None:
    begin(shell, "inline", "forever")
    assert "host-000" in shell.wait_for("host-000")
    shell.type("x?")
    explained = shell.wait_for("greedy episodes of a recent model.*back to the managers")
    assert "x" not in explained.split("\x1b")[0]  # nothing is echoed
    shell.type("?")
    shell.wait_for("host-000.*what these words mean")
    shell.type("\x03")
    assert cursor_is_shown("\x1b[?25l" + shell.wait_for("KeyboardInterrupt.*ready> "))
    shell.assert_is_as_before()


def test_evaluations_stay_above_the_view_as_lines(shell: Shell) -> None:
    text = shell.run(f"{sys.executable} view.py inline ends", "version 20.*ready> ")
    lines = re.findall(r"(0:00:\d\d)  evaluation 1.0 ± 0.0 \(5 episodes\), version (\d+)", text)
    assert lines == [(f"0:00:{version:02}", str(version)) for version in range(1, 21)]
    shell.assert_is_as_before()


@pytest.mark.parametrize("fails_at_start", [True, False])
def test_the_terminal_is_given_back_if_it_cannot_be_drawn_on(
    fails_at_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    pressed = threading.Event()
    handler = signal.getsignal(signal.SIGTERM)

    def draw(shown: bool) -> None:
        if shown == fails_at_start:
            raise ValueError("no such character")

    def run() -> None:
        with TerminalSession(out, draw, lambda key: pressed.set(), whole=True):
            os.write(user, b"x")
            assert pressed.wait(10)  # it is raw now

    with os.fdopen(slave) as keys, os.fdopen(slave, "w", closefd=False) as out:
        monkeypatch.setattr(sys, "stdin", keys)
        with pytest.raises(ValueError, match="no such character"):
            run()
        assert termios.tcgetattr(slave) == before
        drawn = b""
        while not drawn.endswith(b"\x1b[?1049l\x1b[?25h"):
            assert select.select([user], [], [], 10)[0], drawn
            drawn += os.read(user, 100)
    os.close(user)
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inline", "whole"])
@pytest.mark.parametrize("end", ["ends", "raises", "leaves"])
def test_the_terminal_is_given_back_at_every_end(shell: Shell, how: str, end: str) -> None:
    text = shell.run(f"{sys.executable} view.py {how} {end}", "Ctrl-C.*ready> ")
    assert cursor_is_shown(text)
    assert text.count("\x1b[?1049h") == (how == "whole")
    assert ("\x1b[?1049l" in text) == (how == "whole")
    shell.assert_is_as_before()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_the_terminal_is_given_back_at_a_signal(
    shell: Shell, tmp_path: Path, number: signal.Signals
) -> None:
    begin(shell, "inline", "forever")
    shell.type("")
    os.kill(int((tmp_path / "pid").read_text()), number)
    assert cursor_is_shown("\x1b[?25l" + shell.wait_for("ready> "))
    shell.assert_is_as_before()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inline", "whole"])
def test_the_shell_has_the_terminal_while_the_view_is_suspended(shell: Shell, how: str) -> None:
    begin(shell, how, "forever")
    shell.type("\x1a")
    assert cursor_is_shown("\x1b[?25l" + shell.wait_for("ready> "))
    shell.assert_is_as_before()
    shell.run("fg", "Ctrl-C")
    shell.type("?")
    shell.wait_for("greedy episodes of a recent model")
    shell.type("\x03")
    shell.wait_for("ready> ")
    shell.assert_is_as_before()


@pytest.mark.slow
def test_in_the_background_only_lines_are_printed(shell: Shell) -> None:
    begin(shell, "inline", "forever")
    shell.type("\x1a")
    shell.wait_for("ready> ")
    shell.run("bg", "evaluation 1.0 ± 0.0 .5 episodes., version.*opts 12,000 of 100,000")
    time.sleep(1.0)
    later = shell.run("echo t''yped", "typed\r\n")
    assert "Ctrl-C" not in later
    assert "\x1b[?25l" not in later
    shell.assert_is_as_before()
    shell.run("fg", "Ctrl-C stops")
    shell.type("\x03")
    shell.wait_for("ready> ")
    shell.assert_is_as_before()
