"""Event files of earlier starts, cut back to where a run goes on from.

A run that was killed goes on from its last checkpoint, before the last steps it has recorded.
Their curves would run twice over the same steps. TensorBoard's own way out (a session that begins
again at a step) drops every curve from that step on, also those that count something else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorboard.compat.proto.event_pb2 as events  # type: ignore[import-untyped]  # ships no types
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types

_LENGTH_BYTES = 12  # u64, and a checksum of it
_CHECKSUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What a purge found.

    Args:
        removed: events.
        last_other_step: the highest step of the curves that it does not concern; 0 for none.
    """

    removed: int
    last_other_step: int


def purge_events(directory: str | Path, after: int, concerns: Callable[[str], bool]) -> PurgeResult:
    """Remove events whose step is higher than `after` and whose names are all of concern.

    A file that is changed is replaced at once by what stays of it; others are left alone.

    Args:
        directory: with event files, or not there at all.
        after: the last step that stays.
        concerns: whether a curve of this name counts those steps.

    Raises:
        OSError: a file cannot be read or replaced.
    """
    removed, last_other_step = 0, 0
    for path in sorted(Path(directory).glob("events.out.tfevents.*")):
        data = path.read_bytes()
        kept, dropped = [], 0
        for record in iterate_records(data):
            event = parse_event(record)
            names = [] if event is None else [value.tag for value in event.summary.value]
            if not names or not all(concerns(name) for name in names):
                last_other_step = max(last_other_step, event.step if names else 0)
            elif event.step > after:
                dropped += 1
                continue
            kept.append(record)
        if dropped:
            aside = path.with_name(f".{path.name}.new")  # of a name that TensorBoard passes by
            aside.write_bytes(b"".join(kept))
            os.utime(aside, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
            aside.replace(path)
        removed += dropped
    return PurgeResult(removed, last_other_step)


def iterate_records(data: bytes) -> Iterator[bytes]:
    """Whole records, checksums and all; what a killed writer left half written is passed by."""
    begin = 0
    while begin + _LENGTH_BYTES <= len(data):
        length = int.from_bytes(data[begin : begin + 8], "little")
        end = begin + _LENGTH_BYTES + length + _CHECKSUM_BYTES
        if end > len(data):
            return
        yield data[begin:end]
        begin = end


def parse_event(record: bytes) -> Any:  # an untyped Event
    """What a record holds; None where that is no event: not ours to judge."""
    try:
        return events.Event.FromString(record[_LENGTH_BYTES:-_CHECKSUM_BYTES])
    except DecodeError:
        return None
