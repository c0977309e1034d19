"""The map of the newest value: what its readers see, and what a killed writer leaves."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vedette_rl.errors import LatestValueFormatError, MapSpaceError, OneWriterError
from vedette_rl.storage import latest_value as newest
from vedette_rl.storage.buffer_pool import BufferPool
from vedette_rl.storage.latest_value import HEADER_BYTES, LatestValueReader, LatestValueWriter

WRITE_AT_FULL_SPEED = """
import sys
from vedette_rl.storage.latest_value import LatestValueWriter
writer = LatestValueWriter(sys.argv[1], max_bytes=4096, summed=sys.argv[2] == "summed")
while True:
    number = writer.seq + 1
    writer.write(number.to_bytes(8, "little"), bytes([number % 251]) * (number % 4000))
"""


def assert_whole(seq: int, data: bytes) -> None:
    assert int.from_bytes(data[:8], "little") == seq
    assert data[8:] == bytes([seq % 251]) * (seq % 4000)


def test_a_reader_sees_nothing_before_the_file_is_made(tmp_path: Path) -> None:
    reader = LatestValueReader(tmp_path / "n")
    assert reader.seq == 0
    assert reader.read() is None
    writer = LatestValueWriter(tmp_path / "n", max_bytes=10)
    assert reader.seq == 0
    assert reader.read() is None
    writer.write(b"a")
    assert reader.read() == (1, b"a")


def test_making_a_map_waits_for_the_disk_only_where_it_must_outlive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    LatestValueWriter(tmp_path / "live", max_bytes=10)
    assert not synced  # a manager makes one between two words with its learner
    LatestValueWriter(tmp_path / "kept", max_bytes=10, durable=True)
    assert len(synced) == 1


def test_the_parts_of_a_value_follow_each_other(tmp_path: Path) -> None:
    writer = LatestValueWriter(tmp_path / "n", max_bytes=10)
    reader = LatestValueReader(tmp_path / "n")
    for number in range(1, 9):
        assert writer.write(b"value ", str(number).encode()) == number
        assert reader.seq == number
        assert reader.read(after=number - 1) == (number, f"value {number}".encode())
        assert reader.read(after=number) is None


def test_a_large_value_stays_as_it_was_read_while_somebody_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest, "BufferPool", lambda: BufferPool(large_bytes=100))
    writer = LatestValueWriter(tmp_path / "n", max_bytes=200)
    reader = LatestValueReader(tmp_path / "n")
    held = []
    for number in range(1, 9):
        writer.write(bytes([number]) * 200)
        found = reader.read_array()
        assert found is not None
        held.append(found[1].data[100:])
        del found
        held = held[-3:]
        assert [set(value) for value in held] == [{n} for n in range(1, 9)][
            max(0, number - 3) : number
        ]


def test_an_empty_value_is_a_value(tmp_path: Path) -> None:
    writer = LatestValueWriter(tmp_path / "n", max_bytes=1)
    writer.write()
    assert LatestValueReader(tmp_path / "n").read() == (1, b"")


def test_a_value_too_large_is_refused_and_the_one_before_stays(tmp_path: Path) -> None:
    writer = LatestValueWriter(tmp_path / "n", max_bytes=4)
    writer.write(b"1234")
    with pytest.raises(ValueError, match=r"5 bytes .* takes 4"):
        writer.write(b"12345")
    assert LatestValueReader(tmp_path / "n").read() == (1, b"1234")


def test_numbers_continue_when_the_file_is_opened_again(tmp_path: Path) -> None:
    writer = LatestValueWriter(tmp_path / "n", max_bytes=4)
    reader = LatestValueReader(tmp_path / "n")
    writer.write(b"a")
    writer.close()
    again = LatestValueWriter(tmp_path / "n", max_bytes=4)
    assert again.value() == b"a"
    assert again.write(b"b") == 2
    assert reader.read(after=1) == (2, b"b")


def test_only_one_may_write(tmp_path: Path) -> None:
    writer = LatestValueWriter(tmp_path / "n", max_bytes=4)
    with pytest.raises(OneWriterError, match="in use by another process"):
        LatestValueWriter(tmp_path / "n", max_bytes=4)
    writer.close()
    LatestValueWriter(tmp_path / "n", max_bytes=4)


@pytest.mark.parametrize("content", [b"", b"hello", b"\0" * 5000])
def test_another_file_is_refused_by_both(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "n").write_bytes(content)
    with pytest.raises(LatestValueFormatError, match=r"n is no map .* delete it"):
        LatestValueWriter(tmp_path / "n", max_bytes=4)
    with pytest.raises(LatestValueFormatError, match="no map"):
        LatestValueReader(tmp_path / "n")


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    LatestValueWriter(tmp_path / "n", max_bytes=400).close()
    os.truncate(tmp_path / "n", 500)
    with pytest.raises(LatestValueFormatError, match="cut short"):
        LatestValueWriter(tmp_path / "n", max_bytes=400)


def test_a_file_for_smaller_values_is_refused(tmp_path: Path) -> None:
    LatestValueWriter(tmp_path / "n", max_bytes=400).close()
    with pytest.raises(LatestValueFormatError, match="400 bytes, and 401 are asked"):
        LatestValueWriter(tmp_path / "n", max_bytes=401)
    LatestValueWriter(tmp_path / "n", max_bytes=399)


def test_a_disk_without_room_is_told_with_file_and_bytes(tmp_path: Path) -> None:
    with pytest.raises(MapSpaceError, match=f"cannot make {tmp_path / 'n'} of 3.38 PB: .*make roo"):
        LatestValueWriter(tmp_path / "n", max_bytes=1 << 50)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_removed_is_not_told_as_a_full_disk(tmp_path: Path) -> None:
    gone = tmp_path / "live"
    with pytest.raises(MapSpaceError, match=f"the folder {gone} is gone: make it again$"):
        LatestValueWriter(gone / "n", max_bytes=400)


def test_a_value_changed_on_disk_is_refused_not_returned(tmp_path: Path) -> None:
    writer = LatestValueWriter(tmp_path / "n", max_bytes=64)
    writer.write(b"value")
    writer.close()
    content = (tmp_path / "n").read_bytes()
    (tmp_path / "n").write_bytes(content.replace(b"value", b"vAlue"))
    assert LatestValueReader(tmp_path / "n").read() is None
    with pytest.raises(LatestValueFormatError, match="torn: value 1 is not whole"):
        LatestValueWriter(tmp_path / "n", max_bytes=64)


def test_a_value_numbered_but_not_pointed_at_is_found_by_the_next_writer(tmp_path: Path) -> None:
    writer = LatestValueWriter(tmp_path / "n", max_bytes=64)
    writer.write(b"a")
    writer.write(b"b")
    writer.close()
    content = bytearray((tmp_path / "n").read_bytes())
    content[64:72] = (1).to_bytes(8, "little")  # the store that a kill took away
    (tmp_path / "n").write_bytes(content)
    assert LatestValueReader(tmp_path / "n").read() == (1, b"a")
    assert LatestValueWriter(tmp_path / "n", max_bytes=64).value() == b"b"
    assert LatestValueReader(tmp_path / "n").read() == (2, b"b")


def test_a_slot_half_written_is_passed_over(tmp_path: Path) -> None:
    writer = LatestValueWriter(tmp_path / "n", max_bytes=64)
    writer.write(b"a")
    writer.close()
    content = bytearray((tmp_path / "n").read_bytes())
    slot = HEADER_BYTES + 2 * 128  # of number 2, marked empty, with some data
    content[slot + 64 : slot + 70] = b"half a"
    (tmp_path / "n").write_bytes(content)
    again = LatestValueWriter(tmp_path / "n", max_bytes=64)
    assert again.value() == b"a"
    assert again.write(b"whole") == 2
    assert LatestValueReader(tmp_path / "n").read() == (2, b"whole")


def test_a_file_goes_on_as_it_was_made(tmp_path: Path) -> None:
    writer = LatestValueWriter(tmp_path / "n", max_bytes=64, summed=False)
    writer.write(b"value")
    writer.close()
    again = LatestValueWriter(tmp_path / "n", max_bytes=64)
    assert again.value() == b"value"
    again.write(b"other")
    assert LatestValueReader(tmp_path / "n").read() == (2, b"other")
    content = bytearray((tmp_path / "n").read_bytes())
    assert content[:8] == newest.MAGIC_UNSUMMED


def test_a_value_is_to_be_had_as_an_array(tmp_path: Path) -> None:
    writer = LatestValueWriter(tmp_path / "n", max_bytes=1 << 20)
    reader = LatestValueReader(tmp_path / "n")
    assert reader.read_array() is None
    writer.write(bytes(100_000), b"end")
    found = reader.read_array()
    assert found is not None
    assert (found[0], found[1].tobytes()) == (1, bytes(100_000) + b"end")
    assert reader.read_array(after=1) is None


def test_several_threads_may_read_with_one_reader(tmp_path: Path) -> None:
    LatestValueWriter(tmp_path / "n", max_bytes=1 << 16).write(bytes(60_000))
    reader = LatestValueReader(tmp_path / "n")
    reader.read()  # it has opened the file
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: reader.read(), range(2000)))
    assert found == [(1, bytes(60_000))] * 2000


def test_the_file_is_really_reserved(tmp_path: Path) -> None:
    LatestValueWriter(tmp_path / "n", max_bytes=1 << 20)
    assert (tmp_path / "n").stat().st_blocks * 512 >= newest.latest_value_file_bytes(1 << 20, 3)


@pytest.fixture(params=["summed", "unsummed"])
def start_writer(tmp_path: Path, request: pytest.FixtureRequest) -> "Iterator[StartWriter]":
    """Starts processes that write numbers at full speed, and ends those left over."""
    children: list[subprocess.Popen[bytes]] = []

    def start() -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", WRITE_AT_FULL_SPEED, str(tmp_path / "n"), request.param]
        children.append(subprocess.Popen(command))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait()


StartWriter = Callable[[], "subprocess.Popen[bytes]"]


def wait_for_more(reader: LatestValueReader, seq: int) -> None:
    """Until a writer that has just been started went beyond value number `seq`."""
    until = time.monotonic() + 60.0
    while reader.seq <= seq:
        assert time.monotonic() < until, "the writer writes nothing"
        time.sleep(0.001)


def test_a_reader_racing_a_writer_never_gets_a_torn_value(
    tmp_path: Path, start_writer: StartWriter
) -> None:
    start_writer()
    reader = LatestValueReader(tmp_path / "n")
    wait_for_more(reader, 0)
    seen = 0
    reads = 0
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        value = reader.read(after=seen)
        if value is not None:
            assert value[0] > seen
            assert_whole(*value)
            seen = value[0]
            reads = reads + 1
    assert reads > 10


def test_a_killed_writer_leaves_a_whole_value(tmp_path: Path, start_writer: StartWriter) -> None:
    before = 0
    for kill in range(5):
        child = start_writer()
        reader = LatestValueReader(tmp_path / "n")
        wait_for_more(reader, before)
        time.sleep(0.003 * kill)
        child.send_signal(signal.SIGKILL)
        child.wait()
        value = reader.read()
        assert value is not None
        assert value[0] > before
        assert_whole(*value)
        writer = LatestValueWriter(tmp_path / "n", max_bytes=4096)
        assert writer.seq - value[0] in (0, 1)
        before = writer.seq
        writer.close()


def test_where_each_value_is_synced_a_torn_one_gives_way_to_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "n"
    writer = LatestValueWriter(path, max_bytes=100, slots=2, torn=True)
    for value in (b"first", b"second", b"third"):
        writer.write(value)
        writer.sync()
    writer.close()
    content = bytearray(path.read_bytes())
    content[content.index(b"third")] ^= 1
    path.write_bytes(content)
    with pytest.raises(LatestValueFormatError, match="torn: value 3 is not whole"):
        newest.read_latest_value(path)
    assert newest.read_latest_value(path, torn=True) == (2, b"second")
    writer = LatestValueWriter(path, max_bytes=100, slots=2, torn=True)
    assert writer.write(b"again") == 3
    assert newest.read_latest_value(path) == (3, b"again")


def test_a_map_beyond_the_limit_of_a_files_size_names_the_limit(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(MapSpaceError) as error:
            LatestValueWriter(tmp_path / "m", max_bytes=100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large: a file may have 20 kB here (ulimit -f): raise that limit" in str(
        error.value
    )
