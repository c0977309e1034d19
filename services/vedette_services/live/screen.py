"""A whole run on one screen: what `vedette run` and `vedette status` draw, in colours or without.

It is cut to the height it is given: the learner first, then the managers, the worst of them first,
and a count of the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vedette_services.live import facts
from vedette_services.live.fleet import headcount, lines
from vedette_services.live.fleet_table import fleet_table
from vedette_services.live.time_split import TimeSplit

WIDE = 100
"""Columns from which on numbers are written out and hosts are shown."""

_BAR = 24
_SPLIT_BAR = 10
_ERRORS = 3
_PHASES = {"training": "green", "waiting": "yellow", "done": "bold green"}
_SHARES = (
    ("optimizing", "█", "green"),
    ("sampling", "▓", "cyan"),
    ("waiting", "▒", "yellow"),
    ("other", "░", "dim"),
)


@dataclass(frozen=True, slots=True)
class Screen:
    """A status as something that rich can print.

    Args:
        title: what is trained.
        stop: the stop conditions, as `StopConfig` has them.
        status: what the learner answered last; None before it has.
        split: of the learner's time.
        first_return: where the way to the target return began; None where nobody knows.
        silent_s: for how long the learner has not answered.
        height: lines there are; None: as many as it takes.
    """

    title: str
    stop: Mapping[str, Any]
    status: facts.Status | None
    split: TimeSplit | None = None
    first_return: float | None = None
    silent_s: float = 0.0
    height: int | None = None
    _label: int = field(default=9, init=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        options = options.update(height=None)
        drawn: list[list[Segment]] = []
        for part in self._learner(options.max_width):
            drawn += console.render_lines(part, options, pad=False)
        if self.status is not None:
            room = None if self.height is None else max(2, self.height - len(drawn))
            wide = options.max_width >= WIDE
            for part in fleet_table(lines(self.status), self.status, room, wide=wide):
                drawn += console.render_lines(part, options, pad=False)
        for line in drawn[: self.height]:
            yield from line
            yield Segment.line()

    # The learner

    def _learner(self, width: int) -> Iterable[RenderableType]:
        yield self._header(width)
        if self.status is None:
            return
        status, number = self.status, facts.text if width >= WIDE else facts.short
        yield from self._bars(number)
        table = self._grid()
        for label, said in facts.rows(status, number):
            table.add_row(Text(label), Text(said))
        table.add_row(Text("learner"), self._time())
        if waits := facts.waiting(status):
            table.add_row(Text("waits"), Text(waits, style="yellow"))
        told, fits = facts.errors(status), self.height is not None
        for said in told[:_ERRORS]:
            cut = Text(said, style="red", no_wrap=fits, overflow="ellipsis")
            table.add_row(Text("error"), cut)
        if len(told) > _ERRORS:
            table.add_row(Text(""), Text(f"and {len(told) - _ERRORS} other errors", style="red"))
        table.add_row(Text("fleet"), Text(headcount(status)))
        yield table

    def _header(self, width: int) -> RenderableType:
        digits = 16 if width >= WIDE else 6
        table = Table.grid(expand=True, padding=(0, 2))
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column(justify="right", no_wrap=True)
        left = Text.assemble((self.title, "bold"), "  ", self._phase())
        right = "" if self.status is None else facts.headline(self.status, digits)
        table.add_row(left, Text(right, style="dim"))
        return table

    def _phase(self) -> Text:
        if self.status is None:
            return Text("waiting for the learner" if self.silent_s >= 3.0 else "starting")
        if self.silent_s >= 3.0:
            return Text(f"no answer for {facts.clock(self.silent_s)}", style="bold red")
        phase = str(self.status.get("phase") or "")
        return Text(phase, style=_PHASES.get(phase, "cyan"))

    def _bars(self, number: facts.Number) -> Iterable[RenderableType]:
        """How far the run is, by each condition that ends it."""
        assert self.status is not None, "it is drawn only where there is one"
        grid = self._grid()
        for words, now, goal in facts.progress(self.status, self.stop):
            self._add_bar(grid, goal, now, f"{number(now)} of {number(goal)} {words}")
        target = self.stop.get("target_return")
        best = facts.value(self.status, "eval", "best_return_mean")
        if target is not None and best is not None:
            said = f"best evaluation {facts.text(best, 1)} of {target:g}"
            if self.first_return is None:  # where it began is not known: no share of the way is
                grid.add_row(Text("goal"), Text(said))
            else:
                way = max(target - self.first_return, 1e-9)
                gone = way if best >= target else best - self.first_return
                self._add_bar(grid, way, gone, said)
        if grid.row_count:
            yield grid

    def _add_bar(self, grid: Table, whole: float, done: float, said: str) -> None:
        row = Table.grid(padding=(0, 2))
        bar = ProgressBar(whole, min(max(done, 0.0), whole), width=_BAR)
        row.add_row(bar, Text(said, no_wrap=True, overflow="ellipsis"))
        grid.add_row(Text("goal"), row)

    def _time(self) -> Text:
        """What the learner spends its time on: a bar, and the shares in the bar's colours."""
        said = Text(no_wrap=True, overflow="ellipsis")
        if self.split is None:
            return said.append("-")
        shares = [(name, getattr(self.split, name), *look) for name, *look in _SHARES]
        edge, drawn = 0.0, 0
        for _, share, block, style in shares:
            edge += share
            cells = round(edge * _SPLIT_BAR) - drawn
            said.append(block * cells, style=style)
            drawn += cells
        for name, share, block, style in shares:
            said.append(f" {block} ", style=style).append(f"{name} {share:.0%}")
        return said

    def _grid(self) -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_column(style="bold", no_wrap=True, width=self._label - 1)
        table.add_column()
        return table
