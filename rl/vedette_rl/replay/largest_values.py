"""The largest values in a replay, for people who look for what has broken a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vedette_rl.core.columns import ACTOR, MANAGER, VERSION
from vedette_rl.replay.prioritized import TD_ERROR
from vedette_rl.replay.rows import Rows

_PIECE_VALUES = 1 << 22


@dataclass(frozen=True, slots=True)
class LargestValue:
    """The value of a column that is farthest from 0, of all rows that can be drawn.

    Args:
        column: its name.
        value: the value.
        manager: the number of the manager that sent the row; -1: not known.
        version: of the model that made it; -1: of none.
    """

    column: str
    value: float
    manager: int = -1
    version: int = -1


def find_largest_values(rows: Rows) -> list[LargestValue]:
    """Find the largest value of each column of floats, the largest of all first."""
    oldest, inserted = rows.live()
    physical = len(next(iter(rows.columns.values())))
    found = []
    for name, column in rows.columns.items():
        if column.dtype.kind != "f" or name == TD_ERROR or oldest == inserted:
            continue
        step = max(1, _PIECE_VALUES // max(1, column[0].size))
        best, at = -1.0, oldest
        for first in range(oldest, inserted, step):
            numbers = np.arange(first, min(first + step, inserted))
            values = np.abs(column[numbers % physical].reshape(len(numbers), -1)).max(axis=1)
            if (largest := float(values.max())) > best:
                best, at = largest, int(numbers[values.argmax()])
        row = {
            key: int(rows.columns[key][at % physical])
            for key in (MANAGER, VERSION, ACTOR)
            if key in rows.columns
        }
        signed = column[at % physical].reshape(-1)
        value = float(signed[np.abs(signed).argmax()])
        found.append(LargestValue(name, value, row.get(MANAGER, -1), row.get(VERSION, -1)))
    return sorted(found, key=lambda one: -abs(one.value))
