"""The journal's format: what is written is read, and what is torn ends it."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
import zlib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_services.run import journal
from vedette_services.run.journal import (
    End,
    Header,
    JournalFormatError,
    Look,
    Part,
    PartWriter,
    Ring,
    StateHashes,
    draws_block,
    end_block,
    hash_scalars,
    keep_config,
    list_parts,
    read_part,
    saved_block,
    scalars_block,
)

HEADER = Header(
    run="r",
    epoch=3,
    step=40,
    written_by=2,
    rings=(Ring("actors", "ab", "aa", 3, 5, 100), Ring("interventions", "cd", "", 0, 0, 7)),
    config="c",
    spaces={"obs": 1},
    errors_delay=1,
    loader="CpuLoader",
    captured=False,
    compiled=False,
    machine={"device": "cpu"},
    versions={"torch": "2"},
)
HASHES = StateHashes(bytes(range(16)), bytes(range(16, 32)))


def looks_of(increases: list[tuple[int, int, bool]]) -> list[Look]:
    seen = np.cumsum([(100, 7), *[each[:2] for each in increases]], axis=0)[1:]
    pairs = zip(seen.tolist(), increases, strict=True)
    return [Look(tuple(rows), dropped) for rows, (_, _, dropped) in pairs]


def write_part(folder: Path, *blocks: bytes, header: Header = HEADER) -> Path:
    folder.mkdir(exist_ok=True)
    writer = PartWriter.create(folder, header)
    for block in blocks:
        writer.write(block)
    writer.sync()
    writer.close()
    return writer.path


INCREASES = st.tuples(st.integers(0, 2**40), st.integers(0, 300), st.booleans())


@given(st.lists(st.lists(INCREASES, min_size=1, max_size=6), max_size=4))
def test_looks_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, int, bool]]]
) -> None:
    looks = looks_of([each for batch in batches for each in batch])
    blocks, done, step = [], 0, HEADER.step
    before: tuple[int, ...] = (100, 7)
    for batch in batches:
        some = looks[done : done + len(batch)]
        blocks.append(draws_block(step + 1, some, before))
        before = some[-1].seen
        done += len(batch)
        step += sum(not look.dropped for look in some)
    part = read_part(write_part(tmp_path_factory.mktemp("journal"), *blocks))
    assert part.header == HEADER
    assert [tuple(row) for row in part.looks.tolist()] == [look.seen for look in looks]
    assert part.dropped.tolist() == [look.dropped for look in looks]
    assert part.last_step == step
    for last in range(HEADER.step, step + 1):
        until = part.looks_until(last)
        assert np.count_nonzero(~part.dropped[:until]) == last - HEADER.step
        assert not until or not part.dropped[until - 1]


def whole(folder: Path) -> tuple[Path, Part]:
    looks = looks_of([(3, 0, False), (0, 0, True), (200, 1, False), (1, 0, False)])
    path = write_part(
        folder,
        draws_block(41, looks[:3], (100, 7)),
        scalars_block(42, hash_scalars({"train/loss": 0.5})),
        saved_block(42, HASHES),
        draws_block(43, looks[3:], looks[2].seen),
        end_block(End(43, "max_opts")),
    )
    return path, read_part(path)


def test_all_kinds_of_blocks_are_read(tmp_path: Path) -> None:
    _, part = whole(tmp_path)
    assert part.saved == {42: HASHES}
    assert part.scalars == {42: hash_scalars({"train/loss": 0.5})}
    assert part.end == End(43, "max_opts")
    assert hash_scalars({"train/loss": 0.5}) != hash_scalars({"train/loss": np.nextafter(0.5, 1)})


def test_a_part_that_is_cut_anywhere_is_what_came_before(tmp_path: Path) -> None:
    path, part = whole(tmp_path)
    data = path.read_bytes()
    steps = set()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        try:
            cut = read_part(path)
        except JournalFormatError:
            assert length < 500
            continue
        steps.add(cut.last_step)
        assert cut.looks.tolist() == part.looks[: len(cut.looks)].tolist()
    assert steps == {40, 42, 43}


def test_a_torn_block_ends_a_part(tmp_path: Path) -> None:
    path, _ = whole(tmp_path)
    data = bytearray(path.read_bytes())
    at = data.index(HASHES.agent)
    data[at] ^= 1
    path.write_bytes(data)
    part = read_part(path)
    assert (part.last_step, part.saved, part.end) == (42, {}, None)


def test_blocks_that_do_not_follow_each_other_are_refused(tmp_path: Path) -> None:
    looks = looks_of([(3, 0, False)])
    path = write_part(tmp_path, draws_block(42, looks, (100, 7)))
    with pytest.raises(JournalFormatError, match="step 42 follows step 40"):
        read_part(path)


def bomb(count: int, expanded: int) -> bytes:
    """A block of draws that says a count of looks, and expands to so many bytes."""
    content = struct.pack("<QI", 41, count) + zlib.compress(bytes(expanded), 9)
    return journal.make_block(journal.Kind.DRAWS, content)


@pytest.mark.parametrize(
    ("count", "expanded", "said"),
    [
        (5, 1 << 20, "5 looks of more than 90 bytes"),
        (1 << 31, 1 << 20, "2,147,483,648 looks in a block, where a trainer writes 1 to 65,536"),
        (65_537, 2 * 65_537, "65,537 looks in a block, where a trainer writes 1 to 65,536"),
        (0, 0, "0 looks in a block"),
    ],
)
def test_looks_that_would_fill_the_memory_are_refused(
    count: int, expanded: int, said: str, tmp_path: Path
) -> None:
    path = write_part(tmp_path, bomb(count, expanded))
    tracemalloc.start()
    try:
        with pytest.raises(JournalFormatError, match=said):
            read_part(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 19
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "content", "most"),
    [
        (journal.Kind.HEADER, bytes((1 << 24) + 1), "16,777,216"),
        (journal.Kind.END, End(9, "x" * (1 << 16)), "65,536"),
        (journal.Kind.SAVED, bytes(41), "40"),
    ],
)
def test_a_block_that_is_longer_than_any_of_a_trainer_is_refused(
    kind: journal.Kind, content: bytes | End, most: str, tmp_path: Path
) -> None:
    if isinstance(content, End):
        content = json.dumps(content._asdict()).encode()
    block = journal.make_block(kind, content)
    path = write_part(tmp_path, block)
    if kind == journal.Kind.HEADER:
        path.write_bytes(block)
    said = rf"of kind {kind.name.lower()} has [\d,]+ bytes, and one of a trainer has at most {most}"
    with pytest.raises(JournalFormatError, match=said):
        read_part(path)


def test_the_longest_block_of_looks_that_a_trainer_writes_is_read(tmp_path: Path) -> None:
    looks = [Look((100 + (1 << 43) * at, 7)) for at in range(journal.LOOKS_OF_A_BLOCK)]
    part = read_part(write_part(tmp_path, draws_block(41, looks, (100, 7))))
    assert len(part.looks) == len(looks)


def test_many_blocks_that_would_fill_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_PART_MAX_NUMBERS", 100)
    looks = looks_of([(3, 0, False)] * 51)
    blocks = [draws_block(41 + at, [look], (100 + 3 * at, 7)) for at, look in enumerate(looks)]
    with pytest.raises(JournalFormatError, match="more than 100 numbers"):
        read_part(write_part(tmp_path, *blocks))


@pytest.mark.parametrize("number", [b"\x80" * 9 + b"\x01", b"\xff" * 8 + b"\x7f"])
def test_numbers_that_no_trainer_writes_are_refused(number: bytes, tmp_path: Path) -> None:
    content = struct.pack("<QI", 41, 1) + zlib.compress(b"\0" + number)
    path = write_part(tmp_path, journal.make_block(journal.Kind.DRAWS, content))
    with pytest.raises(JournalFormatError):
        read_part(path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "3-40")
    with pytest.raises(JournalFormatError, match="it is no regular file"):
        read_part(tmp_path / "3-40")


RING = {"name": "a", "branch": "", "branch_before": "", "branch_begin": 0, "floor": 0}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", -5),
        ("step", "0"),
        ("step", 0.0),
        ("step", 10**30),
        ("step", float("nan")),
        ("epoch", True),
        ("written_by", [1]),
        ("rings", []),
        ("rings", {}),
        ("rings", [RING]),
        ("rings", [{**RING, "inserted": -9}]),
        ("rings", [{**RING, "inserted": 10**25}]),
        ("rings", [{**RING, "inserted": 0, "floor": -(10**6)}]),
        ("rings", [{**RING, "inserted": 0, "name": "\x1b[31mevil\n"}]),
        ("spaces", None),
        ("config", "../../../../etc/passwd"),
        ("config", 5),
        ("machine", [1]),
        ("versions", None),
        ("contract", "1"),
        ("loader", 5),
        ("run", 7),
    ],
)
def test_a_header_that_no_trainer_writes_is_refused_in_a_line(
    key: str, value: object, tmp_path: Path
) -> None:
    content = json.dumps({**asdict(HEADER), key: value}).encode()
    (tmp_path / "3-40").write_bytes(journal.make_block(journal.Kind.HEADER, content))
    with pytest.raises(JournalFormatError, match=f"its header cannot be read .{key} is") as refused:
        read_part(tmp_path / "3-40")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("content", [b"[" * 100_000, b"[]", b"null", b'"x"', b"\xff", b"{}"])
def test_a_header_that_is_none_is_refused_in_a_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "3-40").write_bytes(journal.make_block(journal.Kind.HEADER, content))
    with pytest.raises(JournalFormatError, match="its header cannot be read"):
        read_part(tmp_path / "3-40")


def test_a_part_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    path = write_part(tmp_path)
    path.rename(tmp_path / "4-40")
    with pytest.raises(JournalFormatError, match="its header is of part 3-40"):
        read_part(tmp_path / "4-40")


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"step": "9", "reason": ""}', b'{"step": 9}'])
def test_an_end_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    path = write_part(tmp_path, journal.make_block(journal.Kind.END, content))
    with pytest.raises(JournalFormatError, match="a block cannot be read"):
        read_part(path)


def test_a_part_ends_where_it_says(tmp_path: Path) -> None:
    """A step without memory has a draw, and is not done."""
    looks = looks_of([(3, 0, False), (4, 0, False)])
    blocks = draws_block(41, looks, (100, 7)), end_block(End(41, "no memory"))
    assert read_part(write_part(tmp_path, *blocks)).last_step == 41


def test_no_part_is_appended_to(tmp_path: Path) -> None:
    write_part(tmp_path)
    with pytest.raises(FileExistsError):
        PartWriter.create(tmp_path, HEADER)


def test_parts_are_listed_by_epoch_and_step(tmp_path: Path) -> None:
    for epoch, step in ((10, 0), (2, 300), (2, 40)):
        write_part(tmp_path, header=replace(HEADER, epoch=epoch, step=step))
    keep_config(tmp_path, "seed = 3\n")
    assert [path.name for path in list_parts(tmp_path)] == ["2-40", "2-300", "10-0"]
    assert list_parts(tmp_path / "none") == []
