"""The views of a run: drawn on a terminal, lines in a pipe or a container, nothing in scripts."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from vedette.live.progress import Progress, ProgressTracker
from vedette.live.terminal import TerminalSession
from vedette_protocol.foreign_text import one_line
from vedette_rl.number_format import format_clock
from vedette_services.status.status import Status
from vedette_services.status.stop_conditions import trained_seconds
from vedette_services.status.text import best_line, evaluation_line, run_title, status_line

if TYPE_CHECKING:  # rich is loaded only where there is a terminal to draw on
    from rich.console import RenderableType
    from rich.live import Live

LINE_EVERY_S = 5.0
LINE_PART = 1000
LINE_MOST_S = 60.0
EVALUATION_EVERY_S = 1.0
"""Least time between two evaluations that are printed."""
PIPE_WIDTH = 120
WATCH_HEADING = 2
"""Lines of the heading of `watch`."""

_UNKNOWN = -1
_LINES_KEPT = 1000
_LINES_SHOWN = 4  # above a whole screen
_LINES_FROM = 30  # lines of the terminal


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

    def release(self) -> None:
        """Give the terminal back at once, because the process ends without leaving the view."""


class LineView(View):
    """Prints a line every few seconds, and one for each evaluation.

    After some hours lines are 1/`LINE_PART` of the time apart, at most a minute: a log of months is
    read, too.

    Args:
        every_s: seconds between lines.
        out: the output; None: the standard output.
        log: takes the lines instead, and adds the time by itself; it has the evaluations already.
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
        self._every_s = every_s
        self._now = now
        self._out = out or sys.stdout
        self._log = log
        self._began = now()
        self._last = self._began
        self._heard = -math.inf
        self._last_evaluation = -math.inf
        self._best: int | None = _UNKNOWN  # version of the best evaluation, as it was shown last
        self._tracker = ProgressTracker()

    def show(self, status: Status | None) -> None:
        """Print a line if the last one is at least `every_s` old, or for a new evaluation."""
        fresh = status is not None and self._tracker.update(status)[1] and self._log is None
        if status is not None:
            self._show_evaluation(status, fresh=fresh)
        now = self._now()
        self._heard = self._heard if status is None else now
        if now - self._last < max(self._every_s, self._part_s(now)):
            return
        self._last = now
        if status is not None:
            self.print_line(status_line(status))
        elif math.isfinite(self._heard):
            self.print_line(f"no answer from the learner for {now - self._heard:.0f} s")
        else:
            self.print_line("waiting for the learner")

    def _show_evaluation(self, status: Status, *, fresh: bool) -> None:
        """Print a new evaluation if one is due, and every best one."""
        best = status.eval.best_version
        is_best = self._best != _UNKNOWN and best != self._best and self._log is None
        self._best = best
        if fresh and (self._is_evaluation_due() or best == status.eval.version):
            self.print_line(evaluation_line(status))
        elif is_best and best is not None:  # of another evaluation, or confirmed since
            self.print_line(best_line(status))

    def _is_evaluation_due(self) -> bool:
        now = self._now()
        is_due = now - self._last_evaluation >= max(EVALUATION_EVERY_S, self._part_s(now))
        self._last_evaluation = now if is_due else self._last_evaluation
        return is_due

    def _part_s(self, now: float) -> float:
        return min((now - self._began) / LINE_PART, LINE_MOST_S)

    def print_line(self, text: str) -> None:
        """Print a line with the time since the beginning."""
        text = one_line(text)  # it may name a file, or what one says
        if self._log is not None:
            self._log(text)
            return
        print(f"{format_clock(self._now() - self._began)}  {text}", file=self._out, flush=True)


class TerminalView(View):
    """Draws the run on a terminal, twice a second; evaluations stay above it as lines.

    In the background it prints lines, as a `LineView` does.

    Args:
        title: agent and environment; "": those of the status.
        whole: use the whole terminal until the end, then print the lines and the last screen.
        run: the run's directory, from whose records the curves begin; None: it is not here.
        out: the terminal; None: the standard output.
        now: a monotonic clock.
    """

    def __init__(
        self,
        title: str = "",
        *,
        whole: bool = False,
        run: Path | None = None,
        out: IO[str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.console import Console

        self._title = title
        self._whole = whole
        self._now = now
        self._console = Console(file=out)
        self._live: Live | None = None
        self._session = TerminalSession(out or sys.stdout, self._draw, self._on_key, whole=whole)
        self._tracker = ProgressTracker(run)
        self._progress = Progress()
        self._status: Status | None = None
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)  # of a whole screen
        self._explain = False
        self._entered = False
        self._heard = self._last_line = now()
        self._last_evaluation = -math.inf

    def __enter__(self) -> Self:
        self._entered = True
        self._session.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if not self._entered:
            return
        self._session.__exit__(*error)
        self._entered = False
        self._explain = False
        if self._whole:
            for line in self._lines:
                self._print(line)
            self._console.print(self.screen())

    def release(self) -> None:
        """Give the terminal back at once."""
        self._session.release()

    def show(self, status: Status | None) -> None:
        """Draw a status. Without one the last is kept, with the time since it came."""
        if status is None:
            return
        self._status = status
        self._heard = self._now()
        self._progress, is_new = self._tracker.update(status)
        if is_new and self._heard - self._last_evaluation >= EVALUATION_EVERY_S:
            self._last_evaluation = self._heard
            self.print_line(f"{_clock(status)}  {evaluation_line(status)}")
        if self._live is None and self._heard - self._last_line >= LINE_EVERY_S:
            self._last_line = self._heard
            self._print(f"{_clock(status)}  {status_line(status)}")

    def print_line(self, text: str) -> None:
        """Print a line above the view."""
        if self._whole:
            self._lines.append(one_line(text))
        else:
            self._print(text)

    def screen(self) -> RenderableType:
        """The current screen, cut to the terminal's height."""
        from rich.console import Group
        from rich.text import Text

        from vedette.live.layout import Screen

        status = self._status
        height = self._console.height - 1
        lines = list(self._lines)[-_LINES_SHOWN:] if height >= _LINES_FROM and self._live else []
        screen = Screen(
            self._title or ("a run" if status is None else run_title(status)),
            status,
            self._progress,
            silent_s=self._now() - self._heard,
            height=height - len(lines),
            explain=self._explain,
            hint=self._hint() if self._entered else "",
        )
        shown = [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]
        return Group(*shown, screen)

    def _hint(self) -> str:
        leave = "Ctrl-C leaves" if self._whole else "Ctrl-C stops with a checkpoint"
        words = "?: back to the managers" if self._explain else "?: what these words mean"
        return f"{words} · {leave}" if self._session.has_keys else leave

    def _on_key(self, key: str) -> None:
        if key == "?":
            self._explain = not self._explain
            if live := self._live:
                live.refresh()

    def _draw(self, shown: bool) -> None:
        """Begin to draw, or end it; a `Live` of rich cannot begin again where it ended."""
        from rich.live import Live

        if shown:
            self._live = Live(
                console=self._console,
                get_renderable=self.screen,
                refresh_per_second=2,
                transient=True,
                screen=self._whole,
            )
            self._live.start(refresh=True)
        elif self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, text: str) -> None:
        self._console.print(one_line(text), markup=False, highlight=False)


def view_for(
    title: str = "", out: IO[str] | None = None, *, whole: bool = False, run: Path | None = None
) -> View:
    """Make a `TerminalView` for a terminal, a `LineView` for any other output.

    Args:
        title: agent and environment; "": those of the status.
        out: the output; None: the standard output.
        whole: use the whole terminal, if there is one.
        run: the run's directory, if it is here.
    """
    stream = out or sys.stdout
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return TerminalView(title, whole=whole, run=run, out=stream)
    return LineView(out=stream)


def print_once(status: Status, out: IO[str] | None = None, run: Path | None = None) -> None:
    """Print a status once: whole, or cut to ``LINES`` under `watch`.

    Args:
        run: the argument of `view_for`.
    """
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
        ProgressTracker(run).update(status)[0],
        height=max(8, int(lines) - WATCH_HEADING) if cut else None,
    )
    with console.capture() as drawn:
        console.print(screen)
    stream.writelines(f"{line.rstrip()}\n" for line in drawn.get().splitlines())


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], out: IO[str] | None = None
) -> None:
    """Print a table: drawn on a terminal that it fits, with a column for each row if only that
    does; else a line for each row."""
    stream = out or sys.stdout
    lines = [[one_line(cell) for cell in row] for row in (heads, *rows)]
    turned = [list(column) for column in zip(*lines, strict=True)]
    width = shutil.get_terminal_size().columns
    fitting = [one for one in (lines, turned) if len(_padded(one, 3)[0]) < width]
    if not stream.isatty() or not fitting:
        for line in _padded(lines):
            stream.write(f"{line.rstrip()}\n")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heads, *rows = fitting[0]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(Text(head), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(file=stream).print(table)


def _padded(lines: Sequence[Sequence[str]], apart: int = 2) -> list[str]:
    """Align cells in columns; all lines are as long."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [(" " * apart).join(map(str.ljust, line, widths)) for line in lines]


def _clock(status: Status) -> str:
    return format_clock(trained_seconds(status) or 0.0)
