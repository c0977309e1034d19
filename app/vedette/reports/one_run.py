"""The page about one run."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from vedette.reports.fleet_timeline import EVENTS_MAX, draw_timeline, event_rows, fleet_lanes
from vedette.reports.markup import Markup, element
from vedette.reports.page import chart_groups, figure_cards, html_notes, html_page, html_section
from vedette.reports.record import RunRecord
from vedette.reports.selection import charts_of
from vedette.reports.tables import (
    accounting_table,
    configuration_tables,
    html_table,
    managers_table,
    replay_text,
    time_split_bar,
)
from vedette_rl.bytes_text import bytes_text
from vedette_services.run.number_format import format_count, format_decimal, format_duration

_OPEN_MAX = 12  # events that are not folded away


def run_page(record: RunRecord, command: str) -> str:
    """Make the page about a run, in HTML.

    Args:
        command: the command that writes it again.
    """
    videos = list(_videos(record.directory))
    return html_page(
        f"{record.title} · {record.name}",
        element("h1", record.title),
        element("p", _identity(record), class_="soft"),
        html_notes(record.notes),
        figure_cards(_figures(record)),
        html_section("Curves", chart_groups(charts_of(record))),
        html_section("The fleet", *_fleet(record)),
        html_section("The learner's time since its last start", time_split_bar(record)),
        html_section("Sample accounting", accounting_table(record)),
        html_section("Videos", element("div", *videos, class_="films") if videos else None),
        html_section("Configuration", *configuration_tables(record.config)),
        command=command,
    )


def seconds_of(record: RunRecord) -> float | None:
    """Return the seconds that the learner has run, over all its starts; None if not known."""
    spans = [end - begin for lane in fleet_lanes(record)[:1] for begin, end in lane.spans]
    return sum(spans) if spans else record.summary.seconds


def _identity(record: RunRecord) -> str:
    seed = record.configured("seed")
    known = [
        f"run {record.summary.run_id}" if record.summary.run_id else None,
        f"seed {seed}" if seed is not None else None,
        str(record.directory.resolve()),
    ]
    return ", ".join(part for part in known if part)


def _figures(record: RunRecord) -> list[tuple[str, str]]:
    found, target = record.summary, record.target
    best = found.eval.best_return_mean
    goal = "" if target is None else f" of {target:g}"
    figures = [
        ("best evaluation", format_decimal(best) + goal),
        ("env steps", format_count(found.env_steps)),
        ("optimization steps", format_count(found.opt_steps)),
        ("time", format_duration(seconds_of(record))),
        ("samples/s", format_count(found.rates.samples_per_sec)),
        ("optimization steps/s", format_count(found.rates.opt_steps_per_sec)),
        ("lag, mean", f"{format_decimal(found.lag.seconds_mean, 2)} s"),
        ("replay", replay_text(record)),
    ]
    return [(label, value) for label, value in figures if not value.startswith("–")]


def _fleet(record: RunRecord) -> list[Markup | None]:
    """The timeline, the events, and the managers of the last status."""
    if not record.events:
        return [managers_table(record)]
    rows = list(event_rows(record.events))
    events = len(record.events)
    count = f"{events} event{'' if events == 1 else 's'}"
    if events > EVENTS_MAX:
        count = f"The last {EVENTS_MAX} of {events:,} events"
    listed = element(
        "details",
        element("summary", count),
        html_table(("when", "what", "env steps"), rows),
        open="" if len(rows) <= _OPEN_MAX else None,
    )
    return [draw_timeline(record), listed, managers_table(record)]


VIDEO_BYTES_MAX = 8 << 20
ALL_VIDEOS_BYTES_MAX = 24 << 20
_TYPES = {".gif": "image/gif", ".mp4": "video/mp4"}


def _videos(run: Path) -> Iterator[Markup]:
    """The videos of a run as figures; a line for each that is too large or cannot be read."""
    room = ALL_VIDEOS_BYTES_MAX
    found = [*run.glob("*"), *run.glob("videos/*")]
    for path in sorted(path for path in found if path.suffix in _TYPES and path.is_file()):
        name = path.relative_to(run).as_posix()
        try:
            count = path.stat().st_size
            if count > min(VIDEO_BYTES_MAX, room):
                yield element(
                    "p", f"{name} ({bytes_text(count)}) is too large to be part of this page."
                )
                continue
            data = path.read_bytes()
        except OSError as error:
            yield element("p", f"{name} cannot be read: {error.strerror or error}")
            continue
        room -= count
        yield element("figure", element("figcaption", name), _shown(path, data), class_="film")


def _shown(path: Path, data: bytes) -> Markup:
    kind = _TYPES[path.suffix]
    source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    if path.suffix == ".gif":
        return element("img", src=source, alt="an episode of the evaluated policy")
    return element("video", src=source, controls="", loop="", muted="", playsinline="")
