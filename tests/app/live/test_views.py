"""Views of a run on a terminal, in a pipe and under `watch`."""

import io
import re
from typing import Any

import pytest
from fleets import fleet, manager  # beside this file

from vedette.live import LineView, print_once, view_for
from vedette.live.views import TerminalView
from vedette_services.status.status import Status

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


def evaluated(version: int, **more: Any) -> Status:
    result = {"version": version, "return_mean": 2.5, "return_std": 0.5, "episodes": 10, **more}
    return fleet([manager(0)], seconds=65.0, eval=result)


def test_the_lines_of_a_whole_view_stay_when_it_ends() -> None:
    out = Terminal()
    with view_for(out=out, whole=True) as view:
        for version in (100, 200):
            view.show(evaluated(version))
        view.print_line("a learner runs again")
    after = out.getvalue().partition("\x1b[?1049l")[2]
    lines = after.splitlines()
    assert "0:01:05  evaluation 2.5 ± 0.5 (10 episodes), version 200" in lines
    assert "a learner runs again" in lines
    assert "Ctrl-C" not in after


def test_a_pipe_gets_a_line_for_each_evaluation_and_one_a_second_of_many() -> None:
    out = io.StringIO()
    now = [0.0]
    view = LineView(every_s=60.0, out=out, now=lambda: now[0])
    for version, seconds in (
        (100, 0.0),
        (200, 1.0),
        (200, 2.1),
        (240, 1.1),
        (260, 1.9),
        (300, 2.0),
    ):
        now[0] = seconds
        view.show(evaluated(version, best_version=300))
    assert [line.partition(", version ")[2] for line in out.getvalue().splitlines()] == [
        "200",
        "300, best so far",
    ]


def test_every_best_evaluation_is_a_line_however_many_there_are() -> None:
    """Also one that another has followed before anybody looked."""
    out = io.StringIO()
    view = LineView(every_s=60.0, out=out, now=lambda: 0.0)
    view.show(evaluated(100, best_version=100, best_return_mean=2.5))
    view.show(evaluated(200, best_version=200, best_return_mean=2.5))
    view.show(evaluated(300, best_version=200, best_return_mean=2.5))  # within the same second
    view.show(evaluated(400, best_version=350, best_return_mean=496.3))
    assert [line.partition("  ")[2] for line in out.getvalue().splitlines()] == [
        "evaluation 2.5 ± 0.5 (10 episodes), version 200, best so far",
        "evaluation 496.3, version 350, best so far",
    ]


def test_silence_is_said_with_its_seconds_and_not_explained() -> None:
    out = io.StringIO()
    now = [0.0]
    view = LineView(out=out, now=lambda: now[0])
    for now[0], status in ((6.0, None), (7.0, STATUS), (14.0, None)):
        view.show(status)
    said = [line.partition("  ")[2] for line in out.getvalue().splitlines()]
    assert said == ["waiting for the learner", "no answer from the learner for 7 s"]


def test_a_log_that_has_the_evaluations_already_gets_none() -> None:
    lines: list[str] = []
    view = LineView(every_s=60.0, log=lines.append, now=lambda: 0.0)
    for version in (100, 200):
        view.show(evaluated(version))
    assert lines == []


def test_a_pipe_gets_a_line_without_colours_and_a_terminal_gets_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(view_for(out=io.StringIO()), LineView)
    pipe = io.StringIO()
    terminal = Terminal()
    colourless = Terminal()
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
