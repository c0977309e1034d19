"""The views of a run: drawn on a terminal, lines in a pipe or a container, nothing in scripts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, Self

from vedette.live.layout import TimeSplit, TimeSplitTracker
from vedette_services.run.number_format import format_clock
from vedette_services.run.status import Status
from vedette_services.run.status_text import run_title, status_line

if TYPE_CHECKING:  # rich is loaded only where there is a terminal to draw on
    from rich.console import RenderableType
    from rich.live import Live

LINE_EVERY_S = 5.0
PIPE_WIDTH = 120
WATCH_HEADING = 2
"""Lines of the heading of `watch`."""


class View:
    """Shows a run. This base class shows nothing.

    It is entered before the run begins and left at its end.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def show(self, status: Status | None) -> None:
        """Show a new status; None while the learner does not answer. Cheap to call often."""

    def print_line(self, text: str) -> None:
        """Print a line that stays."""


class LineView(View):
    """Prints a line every few seconds.

    Args:
        every_s: seconds between lines.
        out: the output; None: the standard output.
        log: takes the lines instead, and adds the time by itself.
        now: a monotonic clock.
    """

    def __init__(
        self,
        *,
        every_s: float = LINE_EVERY_S,
        out: IO[str] | None = None,
        log: Callable[[str], None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every_s, self._now = every_s, now
        self._out, self._log = out or sys.stdout, log
        self._began = now()
        self._last = self._began
        self._seen = False

    def show(self, status: Status | None) -> None:
        """Print a line if the last one is at least `every_s` old."""
        if self._now() - self._last < self._every_s:
            return
        self._last = self._now()
        self._seen = self._seen or status is not None
        if status is not None:
            self.print_line(status_line(status))
        elif self._seen:
            self.print_line("no answer: the learner is busy, or ending")
        else:
            self.print_line("waiting for the learner")

    def print_line(self, text: str) -> None:
        """Print a line with the time since the beginning."""
        if self._log is not None:
            self._log(text)
            return
        print(f"{format_clock(self._now() - self._began)}  {text}", file=self._out, flush=True)


class TerminalView(View):
    """Draws the run on a terminal, twice a second.

    Args:
        title: agent and environment; "": those of the status.
        whole: use the whole terminal until the end, then print the last screen.
        out: the terminal; None: the standard output.
        now: a monotonic clock.
    """

    def __init__(
        self,
        title: str = "",
        *,
        whole: bool = False,
        out: IO[str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._whole, self._now = title, whole, now
        self._out = out
        self._live: Live | None = None
        self._times = TimeSplitTracker()
        self._status: Status | None = None
        self._split: TimeSplit | None = None
        self._first_return: float | None = None
        self._heard = now()

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(
            console=Console(file=self._out),
            get_renderable=self.screen,
            refresh_per_second=2,
            transient=not self._whole,
            screen=self._whole,
        )
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is None:
            return
        self._live.__exit__(*error)
        if self._whole:
            self._live.console.print(self.screen())

    def show(self, status: Status | None) -> None:
        """Draw a status. Without one the last is kept, with the time since it came."""
        if status is None:
            return
        self._status, self._heard = status, self._now()
        self._split = self._times.update(status)
        if self._first_return is None:
            self._first_return = status.eval.best_return_mean

    def print_line(self, text: str) -> None:
        """Print a line above the view."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)

    def screen(self) -> RenderableType:
        """The current screen, cut to the terminal's height."""
        from vedette.live.layout import Screen

        status = self._status
        return Screen(
            self._title or ("a run" if status is None else run_title(status)),
            status,
            split=self._split,
            first_return=self._first_return,
            silent_s=self._now() - self._heard,
            height=None if self._live is None else self._live.console.height - 1,
        )


def view_for(title: str = "", out: IO[str] | None = None, *, whole: bool = False) -> View:
    """Make a `TerminalView` for a terminal, a `LineView` for any other output.

    Args:
        title: agent and environment; "": those of the status.
        out: the output; None: the standard output.
        whole: use the whole terminal, if there is one.
    """
    stream = out or sys.stdout
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return TerminalView(title, whole=whole, out=stream)
    return LineView(out=stream)


def print_once(status: Status, out: IO[str] | None = None) -> None:
    """Print a status once: whole, or cut to ``LINES`` under `watch`."""
    from rich.console import Console

    from vedette.live.layout import Screen

    stream = out or sys.stdout
    lines = os.environ.get("LINES", "")
    cut = not stream.isatty() and lines.isdecimal()
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    console = Console(file=stream, width=width)
    screen = Screen(
        run_title(status),
        status,
        split=TimeSplitTracker().update(status),
        height=max(8, int(lines) - WATCH_HEADING) if cut else None,
    )
    with console.capture() as drawn:
        console.print(screen)
    stream.writelines(f"{line.rstrip()}\n" for line in drawn.get().splitlines())
