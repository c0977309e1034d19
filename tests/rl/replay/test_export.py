"""Reading a replay at rest."""

from pathlib import Path

import numpy as np
import pytest
from at_rest import live_columns
from counting_rows import DTYPE, assert_rows, rows

from vedette_rl.errors import OneWriterError, ReplayFormatError
from vedette_rl.replay.export import LiveRows
from vedette_rl.replay.ring import RingWriter


def make(directory: Path, inserted: int) -> RingWriter:
    ring = RingWriter.open(directory, DTYPE, 100, run_id="run", guard=30)
    while ring.inserted < inserted:
        count = min(23, inserted - ring.inserted)
        ring.append(rows(ring.inserted, count), count)
        ring.commit(b"stamp")
    return ring


@pytest.mark.parametrize("inserted", [0, 1, 99, 100, 101, 130, 131, 200, 260, 1000])
def test_live_rows_come_oldest_first(tmp_path: Path, inserted: int) -> None:
    make(tmp_path, inserted).close()
    columns = live_columns(tmp_path)
    assert tuple(columns) == DTYPE.names
    assert_rows(columns, np.arange(max(0, inserted - 100), inserted))


def test_the_copies_can_be_changed_and_the_replay_is_not(tmp_path: Path) -> None:
    make(tmp_path, 50).close()
    live_columns(tmp_path)["reward"][:] = 99.0
    assert_rows(live_columns(tmp_path), np.arange(50))


def test_a_killed_writers_rows_are_read_up_to_its_last_commit(tmp_path: Path) -> None:
    ring = make(tmp_path, 50)
    ring.append(rows(50, 9), 9)
    ring._held.close()
    with LiveRows(tmp_path) as live:
        assert (len(live), live.inserted, live.stamp) == (50, 50, b"stamp")
        assert live.names == DTYPE.names
        assert live.column("action").tolist() == list(range(50))


def test_it_is_refused_while_a_writer_runs_and_keeps_one_from_starting(tmp_path: Path) -> None:
    ring = make(tmp_path, 50)
    with pytest.raises(OneWriterError):
        live_columns(tmp_path)
    ring.close()
    with LiveRows(tmp_path), LiveRows(tmp_path), pytest.raises(OneWriterError):
        make(tmp_path, 0)
    make(tmp_path, 0)


def test_a_directory_without_a_replay_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReplayFormatError, match=r"holds no replay: there is no ring\.json"):
        live_columns(tmp_path)
