"""Reading a large file in part: blocks at even distances, the first and the last among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

BLOCK_BYTES = 128 << 10
"""Holds some hundred records."""

Span = tuple[int, int]
"""Begin and end in a file, in bytes."""


def spread_spans(begin: int, end: int, bytes_max: int | None) -> list[Span]:
    """Return the parts of a file to be read.

    Args:
        begin, end: of what there is to read.
        bytes_max: of all parts together, as far as two blocks allow it; None: read it whole.

    Returns:
        The whole if it is small enough, else blocks of `BLOCK_BYTES` at even distances.
    """
    size = end - begin
    if bytes_max is None or size <= max(bytes_max, 2 * BLOCK_BYTES):
        return [(begin, end)]
    blocks = max(2, bytes_max // BLOCK_BYTES)
    step = (size - BLOCK_BYTES) / (blocks - 1)
    firsts = [begin + round(block * step) for block in range(blocks)]
    return [(first, first + BLOCK_BYTES) for first in firsts]


def shares(sizes: Sequence[int], bytes_max: int | None) -> list[int | None]:
    """Divide `bytes_max` among files by their sizes."""
    total = sum(sizes)
    if bytes_max is None or total <= bytes_max:
        return [None] * len(sizes)
    return [bytes_max * size // total for size in sizes]


def iterate_lines(file: BinaryIO, spans: Sequence[Span]) -> Iterator[bytes]:
    """Yield the lines of parts of a file; of a part that begins or ends within a line, the whole
    ones."""
    for begin, end in spans:
        file.seek(begin)
        if begin:
            file.seek(begin - 1)
            file.readline()  # to the end of the line before, or of one that is cut
        while file.tell() < end and (line := file.readline()):
            yield line
