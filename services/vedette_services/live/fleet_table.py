"""The managers' table, cut to the room there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from vedette_services.live.facts import Status, managers, text
from vedette_services.live.fleet import Health, Line, actor_lines

_ACTORS = 64
"""Lines up to which every actor is shown where the height is not bounded."""

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
    lines: Sequence[Line], status: Status, room: int | None, *, wide: bool
) -> Iterator[RenderableType]:
    """The table and, where not all have room, a count of the rest.

    Args:
        lines: of the managers, the worst first.
        status: with their actors, who are shown where there is room for them.
        room: lines there are, the heading's among them; None: as many as it takes.
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


def _with_actors(lines: list[Line], status: Status, room: int | None) -> list[Line]:
    """Below each manager its actors; if that is too much, those in trouble as far as they fit."""
    own = {
        str(manager.get("id", "-")): actor_lines(manager, status) for manager in managers(status)
    }
    count = sum(len(actors) for actors in own.values())
    everybody = len(lines) + count <= (_ACTORS if room is None else room)
    left = count if room is None else room - len(lines)
    shown: list[Line] = []
    for line in lines:
        shown.append(line)
        of_interest = [x for x in own.get(line.name, []) if everybody or x.health > Health.WELL]
        shown += of_interest[:left]
        left -= min(left, len(of_interest))
    return shown


def _table(lines: Sequence[Line], *, wide: bool) -> Table:
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


def _rest(lines: Sequence[Line]) -> str:
    counts = Counter(line.health for line in lines)
    told = [f"{text(counts[health])} {words}" for health, words in _WORDS.items() if counts[health]]
    return f"and {text(len(lines))} more managers: {', '.join(told) or 'all well'}"
