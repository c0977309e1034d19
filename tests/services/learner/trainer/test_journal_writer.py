"""The thread that writes the journal: nothing is missing, and no disk delays the training."""

from __future__ import annotations

import errno
import logging
import os
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.learner.trainer import journal_writer
from vedette_services.learner.trainer.background import CheckpointWriter
from vedette_services.learner.trainer.journal_writer import JournalWriter
from vedette_services.run import journal as journal_format
from vedette_services.run.journal import (
    Header,
    PartWriter,
    Ring,
    StateHashes,
    hash_scalars,
    list_parts,
    read_part,
)
from vedette_services.run.spans import find_chain

RINGS = (Ring("actors", "ab", "", 0, 0, 100),)
HASHES = StateHashes(bytes(16), bytes(range(16)))


def header() -> Header:
    return Header(
        run="r",
        epoch=4,
        step=0,
        written_by=None,
        rings=(),
        config="c",
        spaces={},
        errors_delay=1,
        loader="CpuLoader",
        captured=False,
        compiled=False,
        machine={},
        versions={},
    )


def writer_of(folder: Path, every_s: float = 3600.0, **settings: Any) -> JournalWriter:
    folder.mkdir(exist_ok=True)
    return JournalWriter(folder, RINGS, header, every_s=every_s, **settings)


def test_each_draw_is_there_whenever_the_thread_writes(tmp_path: Path) -> None:
    writer = writer_of(tmp_path, every_s=0.0001)
    writer.begin(7, 3)
    looks = []
    for step in range(8, 4000):
        looks += [[100 + step]] if step % 50 else [[99 + step], [100 + step]]
        of_draw = [(100 + step,)] if step % 50 else [(99 + step,), (100 + step,)]
        writer.add_draw(of_draw)
        if step % 100 == 0:
            writer.add_scalars(step, {"train/loss": float(step)})
        if step % 500 == 0:
            writer.save(step, HASHES)
            found = read_part(tmp_path / "4-7")
            assert found.last_step == step
            assert found.saved[step] == HASHES
    writer.end(3999, "max_opts")
    writer.close()
    (path,) = list_parts(tmp_path)
    part = read_part(path)
    assert (part.header.step, part.header.written_by, part.last_step) == (7, 3, 3999)
    assert part.header.rings == RINGS
    assert part.looks.tolist() == looks
    assert part.scalars[300] == hash_scalars({"train/loss": 300.0})
    assert part.end is not None
    assert part.end.reason == "max_opts"


def test_a_part_that_begins_later_begins_with_the_rows_of_the_last_look(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.begin(0, None)
    writer.add_draw([(130,)])
    writer.end(1, "no memory")
    assert not writer.is_writing
    writer.add_draw([(140,)])
    writer.begin(2, 4)
    assert writer.is_writing
    writer.add_draw([(150,)])
    writer.close()
    first, second = (read_part(path) for path in list_parts(tmp_path))
    assert (first.last_step, first.looks.tolist()) == (1, [[130]])
    assert second.header.rings[0].inserted == 140
    assert (second.last_step, second.looks.tolist()) == (3, [[150]])


def test_a_checkpoint_has_its_name_only_once_its_draws_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    sync_file = journal_format.sync_file

    def note_sync(file: int) -> None:
        sync_file(file)
        synced.append((tmp_path / "checkpoints" / "1").exists())

    monkeypatch.setattr(journal_format, "sync_file", note_sync)
    writer = writer_of(tmp_path / "journal")
    writer.begin(0, None)
    writer.add_draw([(130,)])
    checkpoints = CheckpointWriter(
        Checkpoints(tmp_path / "checkpoints", keep=3),
        note=lambda step, state: writer.save(step, HASHES),
    )
    checkpoints.save(1, {"agent": {}}, {})
    assert checkpoints.close(60.0) == ""
    assert (tmp_path / "checkpoints" / "1").exists()
    assert synced
    assert not any(synced)
    part = read_part(tmp_path / "journal" / "4-0")
    assert (part.last_step, part.saved) == (1, {1: HASHES})
    writer.close()


def test_what_a_disk_refuses_ends_the_part_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = False
    pwrite = os.pwrite

    def write_half(file: int, data: bytes, at: int) -> int:
        if not full:
            return pwrite(file, data, at)
        if len(data) > 8:
            return pwrite(file, data[: len(data) // 2], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", write_half)
    writer = writer_of(tmp_path)
    writer.begin(0, None)
    writer.add_draw([(130,)])
    writer.save(1, HASHES)
    size = (tmp_path / "4-0").stat().st_size
    full = True
    with caplog.at_level(logging.WARNING):
        for step in range(2, 5):
            writer.add_draw([(130 + step,)])
            writer.save(step, HASHES)
            assert not writer.is_writing
            writer.begin(step, 4)
    assert caplog.text.count("No space left on device") == 1
    assert (tmp_path / "4-0").stat().st_size == size, "no half block"
    full = False
    writer.save(5, HASHES)  # a part has begun at step 4
    writer.add_draw([(190,)])
    writer.close()
    assert read_part(tmp_path / "4-0").last_step == 1
    again = read_part(tmp_path / "4-4")
    assert again.header.rings[0].inserted == 134
    assert again.looks.tolist() == [[190]]


def test_it_gives_way_to_checkpoints_on_a_disk_that_is_short(tmp_path: Path) -> None:
    short = threading.Event()
    writer = writer_of(tmp_path, is_short=short.is_set)
    writer.begin(0, None)
    writer.add_draw([(130,)])
    writer.save(1, HASHES)
    assert writer.is_writing
    short.set()
    writer.save(1, HASHES)
    assert not writer.is_writing
    writer.begin(1, 4)
    writer.save(1, HASHES)
    assert not writer.is_writing
    assert [path.name for path in list_parts(tmp_path)] == ["4-0"]
    short.clear()
    writer.begin(2, 4)
    writer.save(2, HASHES)
    assert writer.is_writing
    writer.close()


def test_a_disk_that_is_short_at_the_start_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = writer_of(tmp_path, is_short=lambda: True)
    writer.begin(0, None)
    writer.close()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("the journal is not written (the disk is short, and checkpoints come")
    assert list_parts(tmp_path) == []


def test_many_looks_go_into_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader takes so many of a block and no more."""
    monkeypatch.setattr(journal_writer, "LOOKS_OF_A_BLOCK", 4)
    monkeypatch.setattr(journal_format, "_BLOCK_MAX_NUMBERS", 4)
    writer = writer_of(tmp_path)
    writer.begin(0, None)
    looks: list[list[tuple[int, ...]]] = [[(100 + step,)] * (1 + step % 2) for step in range(11)]
    for of_draw in looks:
        writer.add_draw(of_draw)
    writer.close()
    part = read_part(tmp_path / "4-0")
    assert part.last_step == 11
    assert part.looks.tolist() == [list(seen) for of_draw in looks for seen in of_draw]


def test_no_half_block_is_left_where_a_write_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = PartWriter.create(tmp_path, header())
    before = part.path.read_bytes()
    pwrite = os.pwrite

    def fail_later(file: int, data: bytes, at: int) -> int:
        if at > len(before):
            raise OSError(errno.EIO, "Input/output error")
        return pwrite(file, data[:3], at)

    monkeypatch.setattr(os, "pwrite", fail_later)
    with pytest.raises(OSError, match="Input/output"):
        part.write(b"123456")
    assert part.path.read_bytes() == before
    part.close()


def test_a_long_part_goes_on_in_another_and_those_whose_rows_are_gone_are_removed(
    tmp_path: Path,
) -> None:
    gone_below = 0
    writer = writer_of(
        tmp_path, long_bytes=3000, is_gone=lambda seen: seen[0] < gone_below, every_s=3600.0
    )
    writer.begin(0, None)
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.integers(0, 1000, 6000))
    begins = [0]
    for step in range(1, 6001):
        writer.add_draw([(100 + int(rows[step - 1]),)])
        if step % 500 == 0:
            if writer.is_due:
                begins.append(step)
                gone_below = int(rows[step - 1]) - 600_000
                writer.begin(step, 4)
            writer.save(step, HASHES)
    writer.close()
    assert len(begins) >= 3
    parts = [read_part(path) for path in list_parts(tmp_path)]
    assert len(parts) < len(begins), "the oldest are removed"
    assert parts[0].looks[-1, 0] >= gone_below
    assert [part.header.step for part in parts] == begins[-len(parts) :]
    for before, after in pairwise(parts):
        assert before.last_step == after.header.step
        assert before.looks[-1].tolist() == [after.header.rings[0].inserted]
    chain = find_chain(parts)
    assert [part.header.step for part in chain] == begins[-len(parts) :]
    assert all(after.header.step in before.saved for before, after in pairwise(chain))


def test_draws_before_the_first_part_are_in_none(tmp_path: Path) -> None:
    """As of a run that begins with other weights: it has no state before its first checkpoint."""
    writer = writer_of(tmp_path)
    assert writer.is_due
    for step in range(1, 4):
        writer.add_draw([(100 + step,)])
    writer.save(3, HASHES)
    writer.begin(3, 4)
    writer.add_draw([(120,)])
    writer.close()
    (path,) = list_parts(tmp_path)
    part = read_part(path)
    assert (part.header.step, part.header.rings[0].inserted) == (3, 103)
    assert part.looks.tolist() == [[120]]
