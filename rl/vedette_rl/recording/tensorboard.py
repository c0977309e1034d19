"""TensorBoard's event files, written without torch or TensorFlow.

A file is a sequence of records ``length u64, masked crc32c of it, event, masked crc32c of it``.
Writing is synchronous and buffered: TensorBoard's own writer hands events to a thread and reports
a full disk at some later call.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorboard.compat.proto.event_pb2 as events  # type: ignore[import-untyped]  # ships no types
import tensorboard.compat.proto.summary_pb2 as summaries  # type: ignore[import-untyped]  # likewise
import tensorboard.compat.proto.tensor_pb2 as tensors  # type: ignore[import-untyped]  # likewise
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
from tensorboard.compat.proto.types_pb2 import DT_STRING  # type: ignore[import-untyped]  # likewise
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import (  # type: ignore[import-untyped]  # likewise
    masked_crc32c,
)
from tensorboard.plugins.text.metadata import (  # type: ignore[import-untyped]  # likewise
    create_summary_metadata,
)
from tensorboard.summary.writer.record_writer import (  # type: ignore[import-untyped]  # likewise
    RecordWriter,
)

from vedette_rl.core import Record
from vedette_rl.recording.file_recorder import FileRecorder
from vedette_rl.storage.atomic_files import replacing
from vedette_rl.storage.regular_files import read_bytes

_files = itertools.count()


class TensorboardRecorder(FileRecorder):
    """Writes scalars, texts and hyperparameters into a new event file of a directory.

    Steps are int64. Curves of one directory may count different things (env steps, optimization
    steps): no value is dropped because another name's step was higher.

    Args:
        directory: made if it is not there; earlier files of it stay and are shown with this one.
        clock: seconds since 1970.

    Raises:
        RecordingError: the file cannot be opened or written (full disk, read-only directory).
    """

    def __init__(self, directory: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        place = f"{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        name = f"events.out.tfevents.{int(clock()):010d}.{place}"
        super().__init__(Path(directory) / name, "xb", clock)
        self._records = RecordWriter(self._file)
        self._append(file_version="brain.Event:2")
        self._push()

    def write(self, record: Record, step: int) -> None:
        if record:
            summary = summaries.Summary()
            for name, value in record.items():
                summary.value.add(tag=name, simple_value=float(value))
            self._append(summary=summary, step=step)

    def write_text(self, name: str, text: str) -> None:
        """Write a text as a block: TensorBoard reads it as Markdown and would join its lines."""
        block = "\n".join("    " + line for line in text.splitlines())
        tensor = tensors.TensorProto(dtype=DT_STRING, string_val=[block.encode()])
        metadata = create_summary_metadata(display_name=None, description=None)
        summary = summaries.Summary()
        summary.value.add(tag=name, metadata=metadata, tensor=tensor)
        self._append(summary=summary, step=0)
        self._push()

    def write_hparams(self, hparams: Mapping[str, bool | float | str]) -> None:
        """Write what the run was configured with, for TensorBoard's table of runs."""
        # Where TensorFlow is installed this import loads it.
        from tensorboard.plugins.hparams.summary_v2 import (  # type: ignore[import-untyped]  # no types
            hparams_pb,
        )

        name = str(self.path.parent.resolve())  # two runs of one configuration are two rows
        summary = hparams_pb(dict(hparams), trial_id=name, start_time_secs=self._clock())
        self._append(summary=summary, step=0)
        self._push()

    def _append(self, **fields: Any) -> None:
        event = events.Event(wall_time=self._clock(), **fields)
        with self._recording():
            self._records.write(event.SerializeToString())


# A run that was killed continues from its last checkpoint, before the last steps it has recorded.
# Their curves would run twice over the same steps. TensorBoard's own way out (a session that
# begins again at a step) drops every curve from that step on, also those that count something
# else.

_LENGTH_BYTES = 12  # u64, and a checksum of it
_CHECKSUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """The result of a purge.

    Args:
        removed: events.
        last_other_step: the highest step of the curves that it does not concern; 0 for none.
        last_other_values: the last value of each of those, as float32.
    """

    removed: int
    last_other_step: int
    last_other_values: Mapping[str, float]


def purge_events(directory: str | Path, after: int, concerns: Callable[[str], bool]) -> PurgeResult:
    """Remove events whose step is higher than `after` and whose names are all of concern.

    A file that is changed is replaced at once by what stays of it; others are left alone.

    Args:
        directory: the folder of event files; it may be missing.
        after: the last step that stays.
        concerns: True if a curve of this name counts those steps.

    Raises:
        OSError: a file cannot be read or replaced.
    """
    removed = 0
    last_other_step = 0
    last = dict[str, float]()
    for path in sorted(Path(directory).glob("events.out.tfevents.*")):
        data = read_bytes(path)
        kept = []
        dropped = 0
        for record in iterate_records(data):
            event = parse_event(record)
            names = [] if event is None else [value.tag for value in event.summary.value]
            if not names or not all(concerns(name) for name in names):
                last_other_step = max(last_other_step, event.step if names else 0)
                if names:
                    last.update((value.tag, value.simple_value) for value in event.summary.value)
            elif event.step > after:
                dropped += 1
                continue
            kept.append(record)
        if dropped:
            with replacing(path) as aside:
                aside.write_bytes(b"".join(kept))
                os.utime(aside, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        removed += dropped
    return PurgeResult(removed, last_other_step, last)


def iterate_records(data: bytes) -> Iterator[bytes]:
    """Whole records with their checksums; a half-written one, of a killed writer, is skipped."""
    begin = 0
    while begin + _LENGTH_BYTES <= len(data):
        length = int.from_bytes(data[begin : begin + 8], "little")
        end = begin + _LENGTH_BYTES + length + _CHECKSUM_BYTES
        if end > len(data):
            return
        yield data[begin:end]
        begin = end


_SMALL = b"\0" * 5  # the high bytes of a length below 16 MiB


def find_record(data: bytes) -> int:
    """Return where the first record begins in a part of an event file; its end if none does.

    A record begins with its length and a checksum of that.
    """
    found = data.find(_SMALL)
    while found >= 0:
        begin = found - 3
        head = data[begin : begin + _LENGTH_BYTES] if begin >= 0 else b""
        if len(head) == _LENGTH_BYTES:
            checksum = int.from_bytes(head[8:], "little")
            if masked_crc32c(head[:8]) == checksum:
                return begin
        found = data.find(_SMALL, found + 1)
    return len(data)


def parse_event(record: bytes) -> Any:  # an untyped Event
    """The event of a record; None where the record holds no event."""
    try:
        return events.Event.FromString(record[_LENGTH_BYTES:-_CHECKSUM_BYTES])
    except DecodeError:
        return None
