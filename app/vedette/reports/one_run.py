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
    """The page about a run, as HTML.

    Args:
        command: what writes it again.
    """
    videos_shown = list(video_figures(record.directory))
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
        html_section(
            "Videos", element("div", *videos_shown, class_="films") if videos_shown else None
        ),
        html_section("Configuration", *configuration_tables(record.config)),
        command=command,
    )


def seconds_of(record: RunRecord) -> float | None:
    """How long the learner has run, all its starts together, as far as that is known."""
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
    best_said = format_decimal(best) + (f" of {target:g}" if target is not None else "")
    figures = [
        ("best evaluation", best_said if best is not None else "–"),
        ("env steps", format_count(found.env_steps)),
        ("optimization steps", format_count(found.opt_steps)),
        ("time", format_duration(seconds_of(record))),
        ("samples/s", format_count(found.rates.samples_per_sec)),
        ("optimization steps/s", format_count(found.rates.opt_steps_per_sec)),
        ("lag, mean", f"{format_decimal(found.lag.seconds_mean, 2)} s"),
        ("replay", replay_text(record)),
    ]
    return [(what, message) for what, message in figures if not message.startswith("–")]


def _fleet(record: RunRecord) -> list[Markup | None]:
    """Timeline, events, and the managers as they were last."""
    if not record.events:
        return [managers_table(record)]
    rows = list(event_rows(record.events))
    head = ("when", "what", "env steps")
    listed = element(
        "details",
        element("summary", _count(len(record.events))),
        html_table(head, rows),
        open="" if len(rows) <= _OPEN_MAX else None,
    )
    return [draw_timeline(record), listed, managers_table(record)]


def _count(events: int) -> str:
    if events > EVENTS_MAX:
        return f"The last {EVENTS_MAX} of {events:,} events"
    return f"{events} events" if events != 1 else "1 event"


VIDEO_BYTES_MAX = 8 << 20
ALL_VIDEOS_BYTES_MAX = 24 << 20
_PLACES = ("*", "videos/*")
_TYPES = {".gif": "image/gif", ".mp4": "video/mp4"}


def video_files(run: Path) -> list[Path]:
    """The videos in a run's directory and in its ``videos/``."""
    found = [path for pattern in _PLACES for path in run.glob(pattern)]
    return sorted(path for path in found if path.suffix in _TYPES and path.is_file())


def video_figures(run: Path) -> Iterator[Markup]:
    """Each as a figure; one that is too large, or cannot be read, as a line."""
    room = ALL_VIDEOS_BYTES_MAX
    for path in video_files(run):
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
