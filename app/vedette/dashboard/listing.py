"""The list of runs: what differs between them, how far each has come, and what was noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vedette.reports.charts import extreme_points
from vedette.reports.configurations import flatten
from vedette.reports.record import EVALUATION
from vedette_rl.recording.reading import Curve
from vedette_services.config.loading import read_toml
from vedette_services.errors import SettingError
from vedette_services.run.outcome import read_summary
from vedette_services.run.overview import RunOverview
from vedette_services.status.stop_conditions import elapsed_seconds, stop_progress

COLUMNS_MAX = 6
"""Settings that have columns of their own."""
_UNLISTED = ("preset", "replay.directory", "env.id", "agent.name")
_SPARK_POINTS = 60


@dataclass(frozen=True, slots=True)
class RunDetails:
    """What the list says of a run beside its overview.

    Args:
        settings: its configuration, by dotted key.
        done: share of the way to the stop condition that is nearest; None: it has none.
        left_s: seconds to that at its pace until now; None unless it runs.
    """

    settings: dict[str, str]
    done: float | None
    left_s: float | None


UNREAD = RunDetails({}, None, None)
"""Of a run that cannot be read."""


def read_details(run: Path, *, running: bool) -> RunDetails:
    """Read what the list says of a run."""
    try:
        settings = dict(flatten(read_toml(run / "config.toml")))
    except SettingError:
        settings = {}
    summary = read_summary(run)
    shares = [min(1.0, now / goal) for _, now, goal in stop_progress(summary) if goal > 0]
    done = max(shares, default=None)
    elapsed_s = elapsed_seconds(summary)
    left_s = None
    if running and done and elapsed_s is not None and summary.epoch == 1:
        left_s = elapsed_s * (1.0 - done) / done
    return RunDetails(settings, done, left_s)


def differing_settings(details: Sequence[RunDetails]) -> list[str]:
    """Return the settings that differ between runs; of many, those with the most values first."""
    known = [each.settings for each in details if each.settings]
    names = dict.fromkeys(name for settings in known for name in settings)
    values = {name: {settings.get(name, "–") for settings in known} for name in names}
    differing = [
        name for name, found in values.items() if len(found) > 1 and not name.startswith(_UNLISTED)
    ]
    return sorted(differing, key=lambda name: -len(values[name]))


def shared_values(runs: Sequence[RunOverview]) -> dict[str, str]:
    """Return what is the same of all runs, of what has a column of its own: the list says it once.

    Of one run nothing is.
    """
    if len(runs) < 2:
        return {}
    found = {
        "agent": {run.agent for run in runs},
        "environment": {run.env for run in runs},
        "commit": {run.commit for run in runs},
    }
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def sparkline(curves: Mapping[str, Curve]) -> str:
    """Return the points of the evaluations in a box of 80 x 20; "" if there are fewer than two."""
    curve = curves.get(EVALUATION)
    if curve is None:
        return ""
    finite = np.isfinite(curve.values)
    steps, values = curve.steps[finite], curve.values[finite]
    if values.size < 2:
        return ""
    if values.size > _SPARK_POINTS:
        kept = extreme_points(values, _SPARK_POINTS)
        steps, values = steps[kept], values[kept]
    width = float(steps[-1] - steps[0]) or 1.0
    low = float(values.min())
    height = float(values.max()) - low or 1.0
    places = zip(steps.tolist(), values.tolist(), strict=True)
    return " ".join(
        f"{80 * (x - float(steps[0])) / width:.1f},{20 - 20 * (y - low) / height:.1f}"
        for x, y in places
    )


def matching_text(run: RunOverview, details: RunDetails, names: Sequence[str]) -> str:
    """Return what the filter of the list looks in.

    Args:
        names: the settings that differ, also without their tables: `learning_rate=0.1`.
    """
    settings = [f"{name}={details.settings.get(name, '–')}" for name in names]
    words = [run.run, run.state, run.agent, run.env, *run.tags, run.note]
    return " ".join([*words, *settings]).lower()
