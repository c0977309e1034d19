"""Tables of a report: the sample accounting, the managers, the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vedette.reports.markup import Markup, element
from vedette.reports.number_format import format_count, format_decimal, format_duration
from vedette.reports.record import RunRecord

MANAGERS_MAX = 200
_ACCOUNTING_ROWS = (
    ("produced", "by the actors"),
    ("inserted", "into the replay"),
    ("dropped", "by managers with a full window (actors.on_full)"),
    ("rejected", "by the learner: not as agreed"),
    ("in_flight", "sent, or waiting to be"),
    ("lost", "with a process that was killed"),
    ("duplicates", "came twice, and were kept once"),
)
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
    counts = {name: record.number("samples", name) for name, _ in _ACCOUNTING_ROWS}
    rows = [
        table_row(name.replace("_", " "), format_count(counts[name]), note=note)
        for name, note in _ACCOUNTING_ROWS
        if counts[name] is not None
    ]
    if not rows:
        return element("p", "No sample accounting: there is no summary.json yet.")
    found = [counts[name] or 0 for name in _ACCOUNTED]
    produced = counts["produced"] or 0
    terms = " + ".join(
        f"{format_count(count)} {name.replace('_', ' ')}"
        for name, count in zip(_ACCOUNTED, found, strict=True)
        if count or name == "inserted"
    )
    same = produced == sum(found)
    verdict = f"{format_count(produced)} produced {'=' if same else '≠'} {terms}"
    return element(
        "div",
        html_table((), rows),
        element("p", verdict, class_="good" if same else "bad"),
    )


def managers_table(record: RunRecord) -> Markup | None:
    """The managers at the end; None where there were none. All of it came over the network."""
    given = record.summary.get("managers")
    found = [m for m in given if isinstance(m, Mapping)] if isinstance(given, list) else []
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


def _manager(manager: Mapping[str, Any]) -> Markup:
    given = manager.get("actors")
    actors = [a for a in given if isinstance(a, Mapping)] if isinstance(given, list) else []
    returns = [mean for a in actors if (mean := _number(a, "return_mean")) is not None]
    errors = [str(a["error"]) for a in actors if a.get("error")]
    return element(
        "tr",
        element("th", str(manager.get("id", "–"))),
        element("td", str(manager.get("host", "–"))),
        element("td", "left" if manager.get("left") else str(manager.get("state", "–"))),
        element("td", str(len(actors)), class_="number"),
        *(
            element("td", format_count(sum(_number(a, key) or 0 for a in actors)), class_="number")
            for key in ("restarts", "env_steps", "episodes")
        ),
        element(
            "td", format_decimal(sum(returns) / len(returns) if returns else None), class_="number"
        ),
        element("td", errors[-1] if errors else "", class_="note bad"),
    )


def _number(found: Mapping[str, Any], key: str) -> float | None:
    value = found.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def time_split_bar(record: RunRecord) -> Markup | None:
    """The learner's seconds since its last start, as one bar; None where that is not known."""
    parts = [
        (name, record.number("time", f"{name}_s") or 0.0)
        for name in ("optimizing", "sampling", "waiting")
    ]
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
    held, capacity = record.number("replay", "size"), record.number("replay", "capacity")
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
