"""Views of a run on a terminal, in a pipe and under `watch`."""

import io
import re

import pytest
from fleets import fleet, manager  # beside this file

from vedette.live import LineView, print_once, view_for
from vedette.live.views import TerminalView

COLOUR = r"\x1b\[(\d;)?3[0-7]m"
STATUS = fleet([manager(number) for number in range(100)])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "LINES", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_terminal_view_draws_statuses_and_prints_lines() -> None:
    out = Terminal()
    with TerminalView("dqn on ALE/Pong-v5", out=out) as view:
        view.show(None)
        view.show(STATUS)
        view.print_line("something")
    assert "something" in out.getvalue()
    assert "best evaluation 12.5 of 18" in out.getvalue()


def test_a_whole_view_takes_the_terminal_and_leaves_its_last_picture() -> None:
    out = Terminal()
    with view_for(out=out, whole=True) as view:
        view.show(STATUS)
    text = out.getvalue()
    taken, _, after = text.partition("\x1b[?1049l")
    assert "\x1b[?1049h" in taken
    assert "dqn on ALE/Pong-v5" in after
    assert "more managers" in after


def test_a_pipe_gets_a_line_without_colours_and_a_terminal_gets_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(view_for(out=io.StringIO()), LineView)
    pipe, terminal, colourless = io.StringIO(), Terminal(), Terminal()
    print_once(STATUS, pipe)
    print_once(STATUS, terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    print_once(STATUS, colourless)
    assert "\x1b" not in pipe.getvalue()
    assert re.search(COLOUR, terminal.getvalue())
    assert not re.search(COLOUR, colourless.getvalue())


def test_under_watch_a_status_fits_below_its_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    print_once(STATUS, out)
    found = out.getvalue().splitlines()
    assert len(found) == 22
    assert max(map(len, found)) <= 80
    assert found[-1].startswith("and ")


def test_a_pipe_gets_every_manager() -> None:
    out = io.StringIO()
    print_once(STATUS, out)
    assert sum(line.startswith("host-") for line in out.getvalue().splitlines()) == 100
