"""The views of a run: rich on a terminal, lines in a pipe or a container, none for scripts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any, Protocol, Self

from vedette_services.live import facts

if TYPE_CHECKING:  # rich is loaded only where there is a terminal to draw on
    from rich.console import RenderableType
    from rich.live import Live

LINE_EVERY_S = 5.0


class View(Protocol):
    """What shows a run. Entered before it begins, shown statuses, left at its end."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...

    def show(self, status: facts.Status | None) -> None:
        """A new status, None while the learner does not answer. Cheap to call often."""
        ...

    def say(self, text: str) -> None:
        """A line that stays."""
        ...


class QuietView:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def show(self, status: facts.Status | None) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""


class LineView(QuietView):
    """One line every few seconds.

    Args:
        stop: the stop conditions, as `StopConfig` has them.
        every_s: seconds between lines.
        out: where to.
        now: a monotonic clock.
    """

    def __init__(
        self,
        stop: Mapping[str, Any],
        *,
        every_s: float = LINE_EVERY_S,
        out: IO[str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stop, self._every_s, self._now = stop, every_s, now
        self._out = out or sys.stdout
        self._began = now()
        self._last = self._began
        self._seen = False

    def show(self, status: facts.Status | None) -> None:
        """Write a line if the last was long enough ago."""
        if self._now() - self._last < self._every_s:
            return
        self._last = self._now()
        self._seen = self._seen or bool(status)
        nobody = "the learner is ending" if self._seen else "waiting for the learner"
        self.say(facts.line(status, self._stop) if status else nobody)

    def say(self, text: str) -> None:
        """A line with the time since the beginning."""
        print(f"{facts.clock(self._now() - self._began)}  {text}", file=self._out, flush=True)


class TerminalView(QuietView):
    """A live view on a terminal.

    Args:
        title: what is trained.
        stop: the stop conditions, as `StopConfig` has them.
    """

    def __init__(self, title: str, stop: Mapping[str, Any]) -> None:
        self._title, self._stop = title, stop
        self._live: Live | None = None
        self._first_return: float | None = None

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(self._drawn(None), refresh_per_second=4, transient=True)
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*error)

    def show(self, status: facts.Status | None) -> None:
        """Draw it; while the learner does not answer, what was drawn last stays."""
        if self._live is not None and status is not None:
            self._live.update(self._drawn(status))

    def say(self, text: str) -> None:
        """A line above the view."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)

    def _drawn(self, status: facts.Status | None) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        if status is None or not status.get("run_id"):
            said = (facts.waiting(status) if status else "") or "starting"
            return Panel(Text(said), title=self._title, title_align="left")
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for label, said in facts.rows(status):
            style = "yellow" if label == "waits" else ""
            table.add_row(Text(label), Text(said, style=style))
        parts: list[RenderableType] = [Text(facts.headline(status), style="dim")]
        bars = self._bars(status)
        if bars.row_count:
            parts.append(bars)
        return Panel(Group(*parts, table), title=self._title, title_align="left")

    def _bars(self, status: facts.Status) -> Any:  # a rich Table, which is loaded lazily
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bars = Table.grid(padding=(0, 2))
        for words, now, goal in facts.progress(status, self._stop):
            said = f"{facts.text(now)} of {facts.text(goal)} {words}"
            bars.add_row(ProgressBar(goal, min(now, goal), width=30), Text(said))
        target = self._stop.get("target_return")
        best = facts.value(status, "eval", "best_return_mean")
        if target is not None and best is not None:
            if self._first_return is None:
                self._first_return = best
            way = max(target - self._first_return, 1e-9)
            gone = min(max(best - self._first_return, 0.0), way)
            said = f"best evaluation {facts.text(best, 1)} of {target:g}"
            bars.add_row(ProgressBar(way, gone if best < target else way, width=30), Text(said))
        return bars


def view_for(title: str, stop: Mapping[str, Any], out: IO[str] | None = None) -> View:
    """The view that suits where the output goes."""
    stream = out or sys.stdout
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return TerminalView(title, stop)
    return LineView(stop, out=stream)
