"""Tables of a report: sample accounting, managers, the learner's time, configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vedette.reports.chart import legend_entry
from vedette.reports.markup import Markup, element
from vedette.reports.record import RunRecord
from vedette_services.run.number_format import format_count, format_decimal, format_duration
from vedette_services.run.status import Manager
from vedette_services.run.status_fields import numbers

MANAGERS_MAX = 200
_ACCOUNTED = ("inserted", "dropped", "rejected", "in_flight", "lost")


def html_table(head: Sequence[str], rows: Iterable[Markup], **attributes: object) -> Markup:
    """Make a table that scrolls on its own on a narrow page."""
    titles = element("thead", element("tr", *(element("th", title) for title in head)))
    body = element("table", titles if head else None, element("tbody", *rows), **attributes)
    return element("div", body, class_="wide")


def table_row(name: str, *cells: str, note: str | None = None) -> Markup:
    """Make a row: its name, numbers, and a note."""
    return element(
        "tr",
        element("th", name),
        *(element("td", cell, class_="number") for cell in cells),
        element("td", note, class_="note") if note else None,
    )


def accounting_table(record: RunRecord) -> Markup:
    """Make the table of the sample accounting, and check its sum."""
    samples = record.summary.samples
    rows = [
        table_row(name.replace("_", " "), format_count(count), note=number.title)
        for (name,), number, count in numbers(samples)
    ]
    if not rows:
        return element("p", "No sample accounting: there is no summary.json yet.")
    found = {name.replace("_", " "): getattr(samples, name) or 0 for name in _ACCOUNTED}
    terms = " + ".join(
        f"{format_count(count)} {name}"
        for name, count in found.items()
        if count or name == "inserted"
    )
    produced = samples.produced or 0
    same = produced == sum(found.values())
    equation = f"{format_count(produced)} produced {'=' if same else '≠'} {terms}"
    verdict = element("p", equation, class_="good" if same else "bad")
    return element("div", html_table((), rows), verdict)


def managers_table(record: RunRecord) -> Markup | None:
    """Make the table of the managers in the last status; None if there are none."""
    found = record.summary.managers
    if not found:
        return None
    rows = [_manager(manager) for manager in found[:MANAGERS_MAX]]
    hidden = len(found) - MANAGERS_MAX
    head = ("manager", "host", "state", "actors", "restarts", "env steps", "episodes", "return")
    return element(
        "div",
        html_table((*head, "last error"), rows),
        element("p", f"and {hidden} more") if hidden > 0 else None,
    )


def _manager(manager: Manager) -> Markup:
    actors = manager.actors
    returns = [actor.return_mean for actor in actors if actor.return_mean is not None]
    mean = sum(returns) / len(returns) if returns else None
    errors = [actor.error for actor in actors if actor.error]
    sums = (
        sum(actor.restarts for actor in actors),
        sum(actor.env_steps for actor in actors),
        sum(actor.episodes for actor in actors),
    )
    return element(
        "tr",
        element("th", manager.id or "–"),
        element("td", manager.host or "–"),
        element("td", "left" if manager.left else manager.state or "–"),
        element("td", str(len(actors)), class_="number"),
        *(element("td", format_count(count), class_="number") for count in sums),
        element("td", format_decimal(mean), class_="number"),
        element("td", errors[-1] if errors else "", class_="note bad"),
    )


def time_split_bar(record: RunRecord) -> Markup | None:
    """Draw the learner's time since its last start as a bar; None if it is not known."""
    time = record.summary.time
    spent = {
        "optimizing": time.optimizing_s,
        "sampling": time.sampling_s,
        "waiting": time.waiting_s,
    }
    parts = [(name, seconds or 0.0) for name, seconds in spent.items()]
    total = sum(seconds for _, seconds in parts)
    if not total:
        return None
    shares, legend = [], []
    for colour, (name, seconds) in enumerate(parts):
        percent = 100 * seconds / total
        shares.append(element("i", style=f"width:{percent:.2f}%", class_=f"c{colour}"))
        value = f"{percent:.0f} % ({format_duration(seconds)})"
        legend.append(legend_entry(f"c{colour}", name, value))
    bar = element("div", *shares, class_="share")
    return element("div", bar, element("p", *legend, class_="legend"))


def replay_text(record: RunRecord) -> str:
    """Format the replay's size and capacity; a dash if they are not known."""
    size, capacity = record.summary.replay.size, record.summary.replay.capacity
    if size is None or not capacity:
        return "–"
    return f"{format_count(size)} of {format_count(capacity)}"


def flatten_keys(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every dotted key with its value."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from flatten_keys(value, f"{key}.")
        else:
            yield key, value


def configuration_tables(config: Mapping[str, Any]) -> Iterator[Markup]:
    """Make a folded table of each section."""
    plain = {name: value for name, value in config.items() if not isinstance(value, Mapping)}
    parts = {"run": plain, **{n: v for n, v in config.items() if isinstance(v, Mapping)}}
    for name, part in parts.items():
        rows = [
            table_row(key, format_setting(value))
            for key, value in flatten_keys(part)
            if key != "preset"
        ]
        if rows:
            yield element("details", element("summary", name), html_table((), rows, class_="keys"))


def format_setting(value: object) -> str:
    """Format a configured value as `--set` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(format_setting, value)) if isinstance(value, list) else str(value)
