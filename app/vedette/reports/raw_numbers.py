"""Every recorded number of runs as CSV: nothing is averaged, thinned or rounded."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable
from typing import TextIO

from vedette.reports.record import RunRecord

COLUMNS = ("run", "seed", "tag", "env_steps", "opt_steps", "seconds", "value")
"""``seconds``: of the learner's work."""


def write_numbers(
    out: TextIO, records: Iterable[RunRecord], tags: Collection[str] | None = None
) -> int:
    """Write a line for each recorded number, and a head; return the number of lines.

    Args:
        tags: the curves; None: all.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for record in records:
        seed = record.configured("seed")
        for name, curve in sorted(record.curves.items()):
            if tags is not None and name not in tags:
                continue
            at = record.positions(name)
            columns = [at[kind].tolist() if kind in at else None for kind in ("env", "opt", "s")]
            for i, value in enumerate(curve.values.tolist()):
                env, opt, seconds = (None if column is None else column[i] for column in columns)
                steps = ["" if step is None else round(step) for step in (env, opt)]
                writer.writerow([record.directory, seed, name, *steps, seconds, repr(value)])
            count += curve.values.size
    return count
