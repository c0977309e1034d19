"""Rings whose rows say by their values which they are, and a machine that starts again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import counting_frames
import counting_rows
import numpy as np
import pytest

from vedette_rl.core.columns import empty_columns
from vedette_rl.replay import commits
from vedette_rl.replay.manifest import SharedSpec
from vedette_rl.replay.rows import Rows
from vedette_rl.replay.syncing import RingSyncer
from vedette_rl.storage import latest_value


class Kind(NamedTuple):
    """A ring whose rows say by their values which they are."""

    row: np.dtype[Any]
    shared: SharedSpec | None
    batch: Callable[[int, int], Any]
    assert_rows: Callable[[Any, Any], None]
    stamp: Callable[[int], bytes]


KINDS = {
    "rows": Kind(
        counting_rows.DTYPE,
        None,
        counting_rows.rows,
        counting_rows.assert_rows,
        counting_rows.stamp,
    ),
    "frames": Kind(
        counting_frames.STORED,
        counting_frames.SHARED,
        counting_frames.batch,
        counting_frames.assert_stacks,
        counting_frames.stamp,
    ),
}


HEADER_BYTES = 4032
"""Of the records of commits: head and value of the first slot lie in two pages, which a lost cache
may tear."""


class Machine:
    """A machine that starts again, on which rings are synced when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.starts = 1
        monkeypatch.setattr(commits, "boot_id", lambda: self.starts.to_bytes(16, "big"))
        monkeypatch.setattr(commits, "STAMP_MAX_BYTES", 8192)
        monkeypatch.setattr(commits, "COMMIT_MAX_BYTES", 8192 + commits._RECORD.size)
        monkeypatch.setattr(latest_value, "HEADER_BYTES", HEADER_BYTES)
        monkeypatch.setattr(RingSyncer, "start", lambda *_: None)


def assert_whole(rows: Rows, kind: Kind) -> None:
    """Every live row is the one of its number."""
    numbers = np.arange(*rows.live())
    columns = empty_columns(rows.drawn_dtype, len(numbers))
    rows.gather(numbers % len(next(iter(rows.columns.values()))), columns)
    kind.assert_rows(columns, numbers)
