"""Lays out what `vedette run` and `vedette status` show; `views` draws it on the terminal.

It shows the learner, then the managers, the worst first. Managers for which the given height has
no room are counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vedette.live.fleet import FleetRow, Health, actor_rows, fleet_rows, fleet_summary
from vedette_services.run import status_text
from vedette_services.run.number_format import format_clock, format_number, format_short
from vedette_services.run.status import Status
from vedette_services.run.stop_conditions import elapsed_seconds, stop_progress

WIDE = 100
"""Columns from which numbers are written out and hosts are shown."""

_LABEL = 8
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
    """The screen of a status, which rich can print.

    Args:
        title: agent and environment.
        status: the learner's last answer; None before the first.
        split: of the learner's time.
        first_return: the first evaluation, from which progress is drawn; None if not known.
        silent_s: seconds since the last answer.
        height: lines of the screen; None: as many as needed.
    """

    title: str
    status: Status | None
    split: TimeSplit | None = None
    first_return: float | None = None
    silent_s: float = 0.0
    height: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        options = options.update(height=None)
        drawn: list[list[Segment]] = []
        for part in self._learner(options.max_width):
            drawn += console.render_lines(part, options, pad=False)
        if self.status is not None:
            room = None if self.height is None else max(2, self.height - len(drawn))
            wide = options.max_width >= WIDE
            for part in fleet_table(fleet_rows(self.status), self.status, room, wide=wide):
                drawn += console.render_lines(part, options, pad=False)
        for line in drawn[: self.height]:
            yield from line
            yield Segment.line()

    def _learner(self, width: int) -> Iterable[RenderableType]:
        yield self._header(width)
        if self.status is None:
            return
        status, short = self.status, width < WIDE
        yield from self._bars(format_short if short else format_number)
        table = self._grid()
        for label, message in status_text.status_rows(status, short=short):
            table.add_row(Text(label), Text(message))
        table.add_row(Text("learner"), self._time())
        if waits := status_text.wait_reason(status):
            table.add_row(Text("waits"), Text(waits, style="yellow"))
        errors, fits = status_text.actor_errors(status), self.height is not None
        for message in errors[:_ERRORS]:
            cut = Text(message, style="red", no_wrap=fits, overflow="ellipsis")
            table.add_row(Text("error"), cut)
        if len(errors) > _ERRORS:
            table.add_row(Text(""), Text(f"and {len(errors) - _ERRORS} other errors", style="red"))
        table.add_row(Text("fleet"), Text(fleet_summary(status)))
        yield table

    def _header(self, width: int) -> RenderableType:
        digits = 16 if width >= WIDE else 6
        table = Table.grid(expand=True, padding=(0, 2))
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column(justify="right", no_wrap=True)
        left = Text.assemble((self.title, "bold"), "  ", self._phase())
        right = "" if self.status is None else status_text.run_headline(self.status, digits)
        table.add_row(left, Text(right, style="dim"))
        return table

    def _phase(self) -> Text:
        if self.status is None:
            return Text("waiting for the learner" if self.silent_s >= 3.0 else "starting")
        if self.silent_s >= 3.0:
            return Text(f"no answer for {format_clock(self.silent_s)}", style="bold red")
        phase = self.status.phase
        return Text(phase, style=_PHASES.get(phase, "cyan"))

    def _bars(self, number: Callable[[float], str]) -> Iterable[RenderableType]:
        """The progress to each condition that ends the run."""
        assert self.status is not None, "the bars are drawn only with a status"
        grid = self._grid()
        for words, now, goal in stop_progress(self.status):
            self._add_bar(grid, goal, now, f"{number(now)} of {number(goal)} {words}")
        target, best = self.status.stop.target_return, self.status.eval.best_return_mean
        if target is not None and best is not None:
            message = f"best evaluation {format_number(best, 1)} of {target:g}"
            if self.first_return is None:  # without a beginning there is no share to draw
                grid.add_row(Text("goal"), Text(message))
            else:
                way = max(target - self.first_return, 1e-9)
                gone = way if best >= target else best - self.first_return
                self._add_bar(grid, way, gone, message)
        if grid.row_count:
            yield grid

    def _add_bar(self, grid: Table, whole: float, done: float, message: str) -> None:
        row = Table.grid(padding=(0, 2))
        bar = ProgressBar(whole, min(max(done, 0.0), whole), width=_BAR)
        row.add_row(bar, Text(message, no_wrap=True, overflow="ellipsis"))
        grid.add_row(Text("goal"), row)

    def _time(self) -> Text:
        """The learner's time: a bar, and the shares in the colours of the bar."""
        message = Text(no_wrap=True, overflow="ellipsis")
        if self.split is None:
            return message.append("-")
        shares = [(name, getattr(self.split, name), *look) for name, *look in _SHARES]
        edge, drawn = 0.0, 0
        for _, share, block, style in shares:
            edge += share
            cells = round(edge * _SPLIT_BAR) - drawn
            message.append(block * cells, style=style)
            drawn += cells
        for name, share, block, style in shares:
            message.append(f" {block} ", style=style).append(f"{name} {share:.0%}")
        return message

    def _grid(self) -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_column(style="bold", no_wrap=True, width=_LABEL)
        table.add_column()
        return table


_ACTORS = 64
"""The most lines with which every actor is shown if the height is not bounded."""

_STYLES = {
    Health.GONE: "red",
    Health.TROUBLE: "red",
    Health.HELD_BACK: "yellow",
    Health.LEFT: "dim",
}
_WORDS = {
    Health.GONE: "gone",
    Health.TROUBLE: "in trouble",
    Health.HELD_BACK: "held back",
    Health.LEFT: "left",
}


def fleet_table(
    lines: Sequence[FleetRow], status: Status, room: int | None, *, wide: bool
) -> Iterator[RenderableType]:
    """Make the table of the managers, and a count of those without room.

    Args:
        lines: rows of the managers, the worst first.
        status: with their actors, which are shown if there is room for them.
        room: lines of the table with its heading; None: as many as needed.
        wide: show hosts, too.
    """
    if not lines:
        return
    fits = room is None or len(lines) <= room - 1
    shown = list(lines) if fits or room is None else list(lines[: max(0, room - 2)])
    if fits:
        shown = _with_actors(shown, status, None if room is None else room - 1)
    if shown:
        yield _table(shown, wide=wide)
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


def _table(lines: Sequence[FleetRow], *, wide: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", expand=True)
    table.add_column("manager", no_wrap=True, overflow="ellipsis", max_width=28 if wide else 17)
    if wide:
        table.add_column("host", no_wrap=True, overflow="ellipsis", max_width=24)
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


WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Shares of the time; `other` is publishing, checkpoints, records and starting."""

    waiting: float
    sampling: float
    optimizing: float
    other: float


class TimeSplitTracker:
    """Computes the shares of the last seconds from the times of successive statuses.

    Args:
        window_s: seconds over which the shares are taken.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._epoch: int | None = None
        self._seen: deque[tuple[float, ...]] = deque()

    def update(self, status: Status) -> TimeSplit | None:
        """Add a status. Return the shares of the last seconds; None if it has no times."""
        now = _times(status)
        if now is None:
            return None
        if status.epoch != self._epoch or (self._seen and now[0] < self._seen[-1][0]):
            self._epoch = status.epoch
            self._seen.clear()
        seen = self._seen
        if not seen or now[0] > seen[-1][0]:
            seen.append(now)
        while len(seen) > 2 and now[0] - seen[1][0] >= self._window_s:
            seen.popleft()
        before = seen[0] if len(seen) > 1 else (0.0,) * 4
        return _split([late - early for late, early in zip(now, before, strict=True)])


def _times(status: Status) -> tuple[float, ...] | None:
    """Seconds: of the epoch, waiting, sampling, optimizing; None if one is not known."""
    time, elapsed_s = status.time, elapsed_seconds(status)
    found = (elapsed_s, time.waiting_s, time.sampling_s, time.optimizing_s)
    known = tuple(seconds for seconds in found if seconds is not None)
    return known if len(known) == len(found) else None


def _split(spent: list[float]) -> TimeSplit | None:
    whole = max(spent[0], sum(spent[1:]))
    if whole <= 0.0:
        return None
    waiting, sampling, optimizing = (max(0.0, part) / whole for part in spent[1:])
    return TimeSplit(waiting, sampling, optimizing, max(0.0, 1 - waiting - sampling - optimizing))
