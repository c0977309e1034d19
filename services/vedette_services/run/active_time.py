"""The time in which a run was worked on: the spans of its starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import RunEvent, read_events
from vedette_services.run.outcome import read_summary
from vedette_services.status.records import TrainingTime
from vedette_services.status.status import Status
from vedette_services.status.stop_conditions import elapsed_seconds

if TYPE_CHECKING:  # the reader of curves is slow to load
    from vedette_rl.recording.reading import Floats


def start_spans(
    events: Sequence[RunEvent], last_s: float, recorded: Sequence[Floats] = ()
) -> list[tuple[float, float]]:
    """Return begin and end of each start of a run, in seconds since 1970.

    Args:
        events: of the run.
        last_s: when its status was written; 0: it has none.
        recorded: the times of its curves: a start that was killed ends with its last record.
    """
    starts: list[list[RunEvent]] = []
    for event in events:  # in their order: a clock may have been set back between two starts
        if event.kind == "started":
            starts.append([event])
        elif starts and event.kind != "changed":  # which is logged before the start that it is for
            starts[-1].append(event)
    begins = [start[0].time_s for start in starts]
    found: list[tuple[float, float]] = []
    for start, following in zip(starts, [*begins[1:], math.inf], strict=False):
        begin = start[0].time_s
        ends = [event.time_s for event in start if event.kind in ("ended", "failed")]
        last = [event.time_s for event in start]
        for times in (*recorded, np.array([last_s])):
            own = (times >= begin) & (times < following)
            for before, until in found:  # by a clock that was ahead of this one's
                own &= (times < before) | (times > until)
            last += [float(times[own].max())] if own.any() else []
        end = ends[0] if ends else max(last)
        found.append((begin, max(begin, end)))
    return found


def run_seconds(spans: Sequence[tuple[float, float]], summary: Status) -> float | None:
    """Return the seconds of training of all starts: the number that the learner's status shows.

    A start that has written no status yet has not trained. The spans stand for starts before
    release 0.4, whose statuses know the last one alone.
    """
    if summary.run_seconds is not None:
        return summary.run_seconds
    *earlier, last = spans or [(0.0, 0.0)]
    seconds = elapsed_seconds(summary)
    if seconds is None or (summary.time_s or 0.0) < last[0]:
        seconds = last[1] - last[0] or None
    return seconds if seconds is None else seconds + sum(end - begin for begin, end in earlier)


def training_time_before(run: RunDirectory) -> TrainingTime:
    """Return the training time that a start of a run begins with: that of its earlier starts."""
    summary = read_summary(run.root)
    if summary.run_seconds is not None:
        return TrainingTime(earlier_s=summary.run_seconds)
    spans = _read_spans(run, summary)
    if spans and not spans[-1][0] <= (summary.time_s or 0.0) <= spans[-1][1]:
        spans = spans[:-1]  # the one that begins
    return TrainingTime(earlier_s=run_seconds(spans, summary) or 0.0)


def _read_spans(run: RunDirectory, summary: Status) -> list[tuple[float, float]]:
    """The starts of a run, as `start_spans` has them; none where its events cannot be read."""
    events = list[RunEvent]()
    with suppress(OSError):
        events, _ = read_events(run.events_file)
    return start_spans(events, summary.time_s or 0.0)
