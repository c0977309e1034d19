"""Lays out what `vedette run` and `vedette status` show; `views` draws it on the terminal.

It shows the returns, the learner, then the managers, the worst first. Managers for which the given
height has no room are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vedette.live.fleet import FleetRow, Health, actor_rows, fleet_rows, fleet_summary
from vedette.live.progress import Progress, describe_trend, sparkline
from vedette_rl.number_format import format_clock, format_number, format_short
from vedette_services.status import text as status_text
from vedette_services.status.status import Status
from vedette_services.status.stop_conditions import (
    describe_outcome,
    elapsed_seconds,
    stop_progress,
)

WIDE = 100
"""Columns from which numbers are written out and hosts are shown."""
HIGH = 32
"""Lines from which the curve of the evaluations has several."""

GLOSSARY = {
    "evaluation": "mean return of greedy episodes of a recent model",
    "actors": "mean return of their last, exploring episodes",
    "rising": "change over 10 evaluations; level: within chance",
    "goal": "ends the run; the time left is at this pace",
    "samples": "transitions made by actors, kept in the replay",
    "replay": "stored samples, drawn many times by the learner",
    "version": "optimization steps of a model",
    "lag": "age of the model that made a sample, in versions",
    "learner": "shares of its time over the last 10 seconds",
    "waits": "who waits to keep the replay ratio; it is normal",
    "window": "batches sent that are not acknowledged yet",
    "seen": "seconds since a manager's last report",
    "epoch": "starts of the learner on this run",
}
"""The terms on the screen, each in a line of 60 columns."""

_LABEL = 8
_ERRORS = 3
_CURVE_LEAST = 8  # columns
_CURVE_LINES = 3
_NOBODY_S = 15.0
_PHASES = {
    "training": "green",
    "solved": "bold green",
    "done": "bold green",
    "stopped": "yellow",
    "failed": "bold red",
}
_SHARES = (
    ("optimizing", "█", "green"),
    ("sampling", "▓", "cyan"),
    ("waiting", "▒", "blue"),
    ("other", "░", "dim"),
)


@dataclass(frozen=True, slots=True)
class Screen:
    """The screen of a status, which rich can print.

    Args:
        title: agent and environment.
        status: the learner's last answer; None before the first.
        progress: the curves and rates of the statuses so far.
        silent_s: seconds since the last answer.
        height: lines of the screen; None: as many as needed.
        explain: show the glossary in place of what is below the goals.
        hint: a last line; "" for none.
    """

    title: str
    status: Status | None
    progress: Progress = Progress()  # noqa: RUF009 - it is frozen
    silent_s: float = 0.0
    height: int | None = None
    explain: bool = False
    hint: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        options = options.update(height=None)
        room = None if self.height is None else self.height - bool(self.hint)
        drawn: list[list[Segment]] = []
        for part in self._above(options.max_width):
            drawn += console.render_lines(part, options, pad=False)
        if self.status is not None and not self.explain:
            left = None if room is None else max(2, room - len(drawn))
            for part in fleet_table(self.status, left, options.max_width):
                drawn += console.render_lines(part, options, pad=False)
        drawn = drawn[:room]
        if self.hint:
            last = Text(self.hint, style="dim", no_wrap=True, overflow="ellipsis")
            drawn += console.render_lines(last, options, pad=False)
        for line in drawn:
            yield from line
            yield Segment.line()

    def _above(self, width: int) -> Iterable[RenderableType]:
        """All but the managers."""
        yield self._header(width)
        begun = self.status is not None and self.status.run_id
        if begun:
            yield self._returns(width)
            yield from self._goals(width, format_number if width >= WIDE else format_short)
        if self.explain:
            yield self._glossary()
        elif self.status is not None:
            yield self._learner(self.status, short=width < WIDE)

    def _glossary(self) -> RenderableType:
        table = self._grid(max(map(len, GLOSSARY)))
        for term, meaning in GLOSSARY.items():
            table.add_row(Text(term), Text(meaning))
        return table

    def _learner(self, status: Status, *, short: bool) -> RenderableType:
        """The rows about samples, learner and fleet."""
        table = self._grid()
        rows = status_text.status_rows(status, short=short) if status.run_id else []
        for label, message in rows:
            if label != "returns":
                table.add_row(Text(label), Text(message))
        if status.run_id:
            table.add_row(Text("learner"), self._time())
        if waits := status_text.wait_reason(status):
            table.add_row(Text("waits"), Text(waits, style=_wait_style(status)))
        errors = status_text.actor_errors(status)
        fits = self.height is not None
        for message in errors[:_ERRORS]:
            cut = Text(message, style="red", no_wrap=fits, overflow="ellipsis")
            table.add_row(Text("error"), cut)
        if len(errors) > _ERRORS:
            table.add_row(Text(""), Text(f"and {len(errors) - _ERRORS} other errors", style="red"))
        table.add_row(Text("fleet"), Text(fleet_summary(status)))
        return table

    def _header(self, width: int) -> RenderableType:
        table = Table.grid(expand=True, padding=(0, 2))
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column(justify="right", no_wrap=True)
        left = Text.assemble((self.title, "bold"), "  ", self._phase())
        right = "" if self.status is None else status_text.run_headline(self.status, width)
        table.add_row(left, Text(right, style="dim"))
        return table

    def _phase(self) -> Text:
        if self.status is None:
            return Text("waiting for the learner" if self.silent_s >= 3.0 else "starting")
        if self.silent_s >= 3.0:
            return Text(f"no answer for {format_clock(self.silent_s)}", style="bold red")
        phase = self.status.phase or "starting"
        if phase == "done":
            phase = describe_outcome(self.status) or ("evaluating" if self.status.waits else phase)
        return Text(phase, style=_PHASES.get(phase, "cyan"))

    def _returns(self, width: int) -> RenderableType:
        """The evaluations and the actors' returns: numbers, curves as wide as fits, trend."""
        assert self.status is not None, "the returns are drawn only with a status"
        evaluated, actors = status_text.return_texts(self.status, short=width < WIDE)
        trend = describe_trend(self.progress.evaluations, short=width < WIDE)
        beside = max(map(len, (evaluated, actors))) + 2
        room = width - _LABEL - 1 - beside
        if room - len(trend) - 2 < _CURVE_LEAST:
            trend = ""
        room = max(0, room - (len(trend) + 2 if trend else 0))
        lines = _CURVE_LINES if self.height is not None and self.height >= HIGH else 1
        curve = sparkline(self.progress.evaluations, room, lines)
        table = self._grid()
        for row, drawn in enumerate(curve):
            text = Text(no_wrap=True, overflow="ellipsis")
            text.append(f"{evaluated if row == 0 else '':<{beside}}", style="bold")
            text.append(drawn, style="green")
            text.append(f"  {trend}" if row == 0 and trend else "")
            table.add_row(Text("returns" if row == 0 else ""), text)
        text = Text(f"{actors:<{beside}}", no_wrap=True, overflow="ellipsis")
        text.append(sparkline(self.progress.rollouts, room)[0], style="cyan")
        table.add_row(Text(""), text)
        return table

    def _goals(self, width: int, number: Callable[[float], str]) -> Iterable[RenderableType]:
        """The distance to each condition that ends the run: the target, then the nearest first."""
        assert self.status is not None, "the goals are drawn only with a status"
        grid = self._grid()
        bar = min(max(width // 5, 10), 40)
        self._add_target(grid, bar, short=width < 80)
        left = self.progress.left_s
        never = float("inf")
        left = {} if self.status.phase == "done" else left
        rows = sorted(stop_progress(self.status), key=lambda row: left.get(row[0], never))
        for place, (words, now, goal) in enumerate(rows):
            message = f"{number(now)} of {number(goal)} {words}"
            if place == 0 and words in left:
                message = f"about {format_clock(left[words])} left, {message}"
            _add_bar(grid, bar, now / goal, message)
        if grid.row_count:
            yield grid

    def _add_target(self, grid: Table, bar: int, *, short: bool) -> None:
        assert self.status is not None, "the goals are drawn only with a status"
        target = self.status.stop.target_return
        best = self.status.eval.best_return_mean
        if target is None or best is None:
            return
        message = status_text.target_text(self.status, short=short)
        first = self.progress.first_return
        if first is None:  # without a beginning there is no share to draw
            grid.add_row(Text("goal"), Text(message))
        else:
            way = max(target - first, 1e-9)
            _add_bar(grid, bar, 1.0 if best >= target else (best - first) / way, message)

    def _time(self) -> Text:
        """The learner's time: a bar, and the shares in the colours of the bar."""
        message = Text(no_wrap=True, overflow="ellipsis")
        split = self.progress.split
        if split is None:
            return message.append("-")
        shares = [(name, getattr(split, name), *look) for name, *look in _SHARES]
        edge = 0.0
        drawn = 0
        for _, share, block, style in shares:
            edge += share
            cells = round(edge * 10) - drawn
            message.append(block * cells, style=style)
            drawn += cells
        for name, share, block, style in shares:
            message.append(f" {block} ", style=style).append(f"{name} {share:.0%}")
        return message

    def _grid(self, label: int = _LABEL) -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_column(style="bold", no_wrap=True, width=label)
        table.add_column()
        return table


def _add_bar(grid: Table, width: int, share: float, message: str) -> None:
    row = Table.grid(padding=(0, 2))
    bar = ProgressBar(1.0, min(max(share, 0.0), 1.0), width=width, complete_style="cyan")
    row.add_row(bar, Text(message, no_wrap=True, overflow="ellipsis"))
    grid.add_row(Text("goal"), row)


def _wait_style(status: Status) -> str:
    """Colours only where somebody has to do something: sides that wait for each other are normal,
    and a process that is hung is a fault."""
    if status.heartbeat.hung:
        return "red"
    unattended = status.managers_present == 0 and (elapsed_seconds(status) or 0.0) >= _NOBODY_S
    disks = status.checkpoint.failing or status.snapshot.failing or status.disk.short
    return "yellow" if unattended or disks else ""


_ACTORS = 64
"""The most lines with which every actor is shown if the height is not bounded."""

_STYLES = {
    Health.GONE: "red",
    Health.TROUBLE: "red",
    Health.SILENT: "yellow",
    Health.LEFT: "dim",
}
_WORDS = {
    Health.GONE: "gone",
    Health.TROUBLE: "in trouble",
    Health.SILENT: "silent",
    Health.HELD_BACK: "held back",
    Health.LEFT: "left",
}


def fleet_table(status: Status, room: int | None, width: int) -> Iterator[RenderableType]:
    """Make the table of the managers, the worst first, and a count of those without room.

    Args:
        status: the managers and their actors, which are shown if there is room for them.
        room: lines of the table with its heading; None: as many as needed.
        width: columns of the screen; a wide one has the hosts, too.
    """
    lines = fleet_rows(status)
    if not lines:
        return
    fits = room is None or len(lines) <= room - 1
    shown = list(lines) if fits or room is None else list(lines[: max(0, room - 2)])
    if fits:
        shown = _with_actors(shown, status, None if room is None else room - 1)
    if shown:
        yield _table(shown, width)
    if not fits:
        yield Text(_rest(lines[len(shown) :]), style="dim", no_wrap=True, overflow="ellipsis")


def _with_actors(lines: list[FleetRow], status: Status, room: int | None) -> list[FleetRow]:
    """Adds actors below their managers: all of them, or those in trouble that fit."""
    own = {manager.id or "-": actor_rows(manager, status) for manager in status.managers}
    count = sum(len(actors) for actors in own.values())
    everybody = len(lines) + count <= (_ACTORS if room is None else room)
    left = count if room is None else room - len(lines)
    shown: list[FleetRow] = []
    for line in lines:
        shown.append(line)
        of_interest = [x for x in own.get(line.name, []) if everybody or x.health > Health.WELL]
        shown += of_interest[:left]
        left -= min(left, len(of_interest))
    return shown


def _table(lines: Sequence[FleetRow], width: int) -> Table:
    wide = width >= WIDE
    most = max(24, width // 5)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", expand=True)
    table.add_column("manager", no_wrap=True, overflow="ellipsis", max_width=most if wide else 17)
    if wide:
        table.add_column("host", no_wrap=True, overflow="ellipsis", max_width=most)
    for heading in ("actors", "restarts", "steps/s", "lag", "window", "seen"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    for line in lines:
        cells = [line.name, line.host] if wide else [line.name]
        cells += [line.actors, line.restarts, line.rate, line.lag, line.window, line.seen]
        table.add_row(*map(Text, [*cells, line.what]), style=_STYLES.get(line.health, ""))
    return table


def _rest(lines: Sequence[FleetRow]) -> str:
    counts = Counter(line.health for line in lines)
    parts = [
        f"{format_number(counts[health])} {words}"
        for health, words in _WORDS.items()
        if counts[health]
    ]
    return f"and {format_number(len(lines))} more managers: {', '.join(parts) or 'all well'}"
