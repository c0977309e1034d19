"""What ``vedette rerun`` prints and writes of an execution."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vedette_rl.storage.atomic_files import replacing
from vedette_services.learner.bisect import DrawnRow, FoundStep
from vedette_services.learner.rerun import Watch
from vedette_services.run.spans import Span

_ROWS = 10
"""Rows of a batch that are printed."""

_SAID_EVERY_S = 5.0

_STEPS = 12
"""Steps of two curves that are printed."""


class Progress(Watch):
    """Says every few seconds how far an execution is.

    Args:
        last: its last step.
        say: takes a line.
    """

    def __init__(
        self, last: int, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._last = last
        self._say = say
        self._clock = clock
        self._next = clock() + _SAID_EVERY_S

    def ends(self, opt_steps: int) -> bool:
        now = self._clock()
        if now >= self._next:
            self._next = now + _SAID_EVERY_S
            self._say(f"step {opt_steps:,} of {self._last:,}")
        return False


def describe_span(span: Span) -> Iterator[str]:
    """Say which steps can be executed again, a line each."""
    yield f"steps {span.begin:,} to {span.end:,} can be executed again"
    yield f"from the states of the steps {', '.join(f'{step:,}' for step in span.starts)}"
    if span.why_not_earlier:
        yield f"none before: {span.why_not_earlier}"
    if span.why_not_later:
        yield f"none behind: {span.why_not_later}"


def span_json(span: Span) -> dict[str, Any]:
    """The same for programs."""
    return {
        "first": span.begin,
        "last": span.end,
        "states": span.starts,
        "why_not_earlier": span.why_not_earlier,
        "why_not_later": span.why_not_later,
    }


def describe_found(found: FoundStep) -> Iterator[str]:
    """Say what a step has, its scalars, and the rows of its batch with the largest TD errors."""
    yield f"step {found.step:,}: {found.what}"
    yield ", ".join(f"{name} {value:.6g}" for name, value in sorted(found.scalars.items()))
    yield f"of its {len(found.rows)} rows, those of the largest TD errors:"
    lines = [_HEAD, *map(_row_line, found.worst(_ROWS))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        yield "  " + "  ".join(cells).rstrip()


_HEAD = ("row", "source", "manager", "actor", "version", "age", "rows since", "TD error")


def _row_line(row: DrawnRow) -> tuple[str, ...]:
    error = "" if row.td_error is None else f"{row.td_error:.4g}"
    made = (row.manager, str(row.actor), f"{row.version:,}", f"{row.age:,}")
    if row.version < 0:
        made = ("", "", "", "")
    return (f"{row.number:,}", row.source, *made, f"{row.rows_since:,}", error)


def found_json(found: FoundStep | None) -> dict[str, Any]:
    """What was found, for programs; ``found`` is false where nothing was."""
    if found is None:
        return {"found": False}
    rows = [row._asdict() for row in found.rows]
    scalars = dict(found.scalars)
    return {
        "found": True,
        "step": found.step,
        "what": found.what,
        "scalars": scalars,
        "rows": rows,
    }


Curve = Mapping[int, Mapping[str, float]]
"""Scalars by optimization step."""


def describe_curves(then: Curve, now: Curve) -> Iterator[str]:
    """Print the loss, or the first scalar, of two executions beside each other."""
    steps = sorted({*then, *now})
    names = sorted({name for curve in (then, now) for record in curve.values() for name in record})
    if not names:
        yield "no scalars were recorded between these steps"
        return
    name = next((one for one in names if one.endswith("loss")), names[0])
    chosen = steps[:: max(1, len(steps) // _STEPS)]
    yield f"{'step':>12}  {name:>16}  {'with the change':>16}"
    for step in chosen:
        cells = (f"{curve.get(step, {}).get(name, float('nan')):>16.6g}" for curve in (then, now))
        yield f"{step:>12,}  {'  '.join(cells)}"


def write_curves(path: Path, then: Curve, now: Curve) -> None:
    """Write both curves to a CSV file: ``step``, and each scalar as it was and with the change."""
    names = sorted({name for curve in (then, now) for record in curve.values() for name in record})
    with replacing(path) as new, new.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["step", *[f"{name}{of}" for name in names for of in ("", " changed")]])
        for step in sorted({*then, *now}):
            cells: Sequence[float | str] = [
                curve.get(step, {}).get(name, "") for name in names for curve in (then, now)
            ]
            rows.writerow([step, *cells])


def as_text(found: Mapping[str, Any]) -> str:
    """One JSON object; numbers that are not finite as texts, which all readers of JSON take."""
    return json.dumps(_finite(found))


def _finite(value: Any) -> Any:  # of JSON
    match value:
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case Mapping():
            return {name: _finite(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
    return value
