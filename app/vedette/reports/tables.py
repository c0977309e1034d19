"""Tables of a report: the sample accounting, the managers, the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vedette.reports.markup import Markup, element
from vedette.reports.record import RunRecord
from vedette_services.run.number_format import format_count, format_decimal, format_duration
from vedette_services.run.status import Manager
from vedette_services.run.status_fields import numbers

MANAGERS_MAX = 200
_ACCOUNTED = ("inserted", "dropped", "rejected", "in_flight", "lost")


def html_table(head: Sequence[str], rows: Iterable[Markup], **attributes: object) -> Markup:
    """A table that scrolls by itself where the page is narrow."""
    titles = element("thead", element("tr", *(element("th", title) for title in head)))
    body = element("table", titles if head else None, element("tbody", *rows), **attributes)
    return element("div", body, class_="wide")


def table_row(name: str, *cells: str, note: str | None = None) -> Markup:
    """A name, figures, and what it means."""
    return element(
        "tr",
        element("th", name),
        *(element("td", cell, class_="number") for cell in cells),
        element("td", note, class_="note") if note else None,
    )


def accounting_table(record: RunRecord) -> Markup:
    """Where the samples went, and whether that adds up."""
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
    verdict = f"{format_count(produced)} produced {'=' if same else '≠'} {terms}"
    return element(
        "div",
        html_table((), rows),
        element("p", verdict, class_="good" if same else "bad"),
    )


def managers_table(record: RunRecord) -> Markup | None:
    """The managers at the end; None where there were none. All of it came over the network."""
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
    """The learner's seconds since its last start, as one bar; None where that is not known."""
    time = record.summary.time
    spent = (time.optimizing_s or 0.0, time.sampling_s or 0.0, time.waiting_s or 0.0)
    parts = list(zip(("optimizing", "sampling", "waiting"), spent, strict=True))
    total = sum(seconds for _, seconds in parts)
    if not total:
        return None
    return element(
        "div",
        element(
            "div",
            *(
                element("i", style=f"width:{100 * seconds / total:.2f}%", class_=f"c{colour}")
                for colour, (_, seconds) in enumerate(parts)
            ),
            class_="share",
        ),
        element(
            "p",
            *(
                element(
                    "span",
                    element("i", class_=f"c{colour}"),
                    name,
                    element("b", f"{100 * seconds / total:.0f} % ({format_duration(seconds)})"),
                )
                for colour, (name, seconds) in enumerate(parts)
            ),
            class_="legend",
        ),
    )


def replay_text(record: RunRecord) -> str:
    """How full the replay is."""
    held, capacity = record.summary.replay.size, record.summary.replay.capacity
    return (
        f"{format_count(held)} of {format_count(capacity)}"
        if held is not None and capacity
        else "–"
    )


def flatten_keys(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from flatten_keys(value, f"{key}.")
        else:
            yield key, value


def configuration_tables(config: Mapping[str, Any]) -> Iterator[Markup]:
    """A table a part, folded."""
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
    """A configured value as `--set` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(format_setting, value)) if isinstance(value, list) else str(value)
