"""Progress below a notebook's cell, drawn in place. IPython is used where it runs already."""

from __future__ import annotations

import html
import io
import math
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from vedette.live.layout import Screen
from vedette.live.progress import Progress, ProgressTracker
from vedette.live.views import View
from vedette_protocol.foreign_text import one_line
from vedette_services.status.status import Status
from vedette_services.status.text import evaluation_line

Display = Callable[..., Any]
"""IPython's `display`."""

WIDTH, HEIGHT = 100, 30
DRAW_EVERY_S = 1.0
LINES = 5
_PRE = '<pre style="line-height: 1.25; white-space: pre; overflow-x: auto">{code}</pre>'


def find_display() -> Display | None:
    """Find IPython's `display` in a notebook; None anywhere else, a terminal's IPython too."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    shell: Any = get_ipython()
    return display if getattr(shell, "kernel", None) is not None else None


class Output:
    """A cell's output that is replaced by each newer one."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._handle: Any = None

    def draw(self, text: str, markup: str = "") -> None:
        """Show a text, or its markup where a page can show it."""
        shown = {"text/plain": text, "text/html": markup or _PRE.format(code=html.escape(text))}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


class NotebookView(View):
    """Draws the run as a terminal shows it, once a second, and the last lines below it.

    Args:
        title: agent and environment.
        display: IPython's.
        now: a monotonic clock.
    """

    def __init__(
        self, title: str, display: Display, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._title = title
        self._now = now
        self._drawn = -math.inf
        self._output = Output(display)
        self._lines: deque[str] = deque(maxlen=LINES)
        self._status: Status | None = None
        self._tracker = ProgressTracker()
        self._progress = Progress()

    def __exit__(self, *error: Any) -> None:
        self._draw()

    def show(self, status: Status | None) -> None:
        """Draw a status, if the last drawing is old enough or the run has ended."""
        if status is not None:
            self._status = status
            self._progress, is_new = self._tracker.update(status)
            if is_new:
                self._lines.append(evaluation_line(status))
        is_last = status is not None and status.exit_reason != ""
        if is_last or self._now() - self._drawn >= DRAW_EVERY_S:
            self._draw()

    def print_line(self, text: str) -> None:
        """Show a line below the view, with the few before it."""
        self._lines.append(one_line(text))
        self._draw()

    def _draw(self) -> None:
        from rich.console import Console
        from rich.text import Text

        self._drawn = self._now()
        console = Console(file=io.StringIO(), record=True, width=WIDTH, force_jupyter=False)
        console.print(Screen(self._title, self._status, self._progress, height=HEIGHT))
        for line in self._lines:
            console.print(Text(line, style="dim"))
        text = console.export_text(clear=False)
        self._output.draw(text, console.export_html(inline_styles=True, code_format=_PRE))


class NotebookLines:
    """The newest lines of several runs, each line in place of the oldest one.

    Args:
        display: IPython's.
        count: lines to show.
    """

    def __init__(self, display: Display, count: int = 12) -> None:
        self._output = Output(display)
        self._lines: deque[str] = deque(maxlen=count)

    def add(self, line: str) -> None:
        """Show a line."""
        self._lines.append(one_line(line))
        self._output.draw("\n".join(self._lines))
