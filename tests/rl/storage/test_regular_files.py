"""Files of whatever origin: pipes and devices are refused, and depth is bounded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vedette_rl.storage.regular_files import (
    DEPTH_MAX,
    check_depth,
    find_torn_line,
    is_regular,
    open_regular,
    parse_json,
    read_bytes,
    read_json,
    read_text,
)


def test_a_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"é": 1}', "utf-8")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for file in (tmp_path / "a", tmp_path / "b"):
        assert is_regular(file)
        assert read_json(file) == {"é": 1}
        assert read_text(file).encode() == read_bytes(file)
        with open_regular(file) as opened:
            assert opened.read(1) == b"{"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name")
def test_a_pipe_a_device_and_a_folder_are_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place, why in (
        (pipe, "no regular file"),
        (Path("/dev/zero"), "no regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "nothing", "No such file"),
    ):
        assert not is_regular(place)
        with pytest.raises(OSError, match=why) as refused:
            read_bytes(place)
        assert refused.value.filename == str(place)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 500 + "]" * 500])
def test_what_is_nested_too_deep_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested|Expecting"):
        parse_json(text)


def test_the_deepest_that_is_read() -> None:
    def nested(depth: int) -> object:
        return json.loads("[" * depth + "]" * depth)

    check_depth(nested(DEPTH_MAX))
    check_depth({"a": [1, 2, {"b": "text"}], "c": {}})
    with pytest.raises(ValueError, match=f"more than {DEPTH_MAX} deep"):
        check_depth(nested(DEPTH_MAX + 1))


@pytest.mark.parametrize(
    ("data", "begin"),
    [
        (b"", None),
        (b"a\n", None),
        (b"a\nb", 2),
        (b"b", 0),
        (b"a\n" + 200_000 * b"b", 2),
        (200_000 * b"b", 0),
        (b"a\n" + 65_535 * b"b", 2),
        (b"a\n" + 65_536 * b"b", 2),
        (200_000 * b"b" + b"\n", None),
    ],
)
def test_a_line_without_an_end_is_found(tmp_path: Path, data: bytes, begin: int | None) -> None:
    (tmp_path / "lines").write_bytes(data)
    assert find_torn_line(tmp_path / "lines") == begin
    assert find_torn_line(tmp_path / "missing") is None
