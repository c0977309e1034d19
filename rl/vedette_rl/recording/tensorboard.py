"""TensorBoard's event files, written without torch or TensorFlow.

A file is a sequence of records ``length u64, masked crc32c of it, event, masked crc32c of it``.
Writing is synchronous and buffered: TensorBoard's own writer hands events to a thread and reports
a full disk at some later call.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import tensorboard.compat.proto.event_pb2 as events  # type: ignore[import-untyped]  # ships no types
import tensorboard.compat.proto.summary_pb2 as summaries  # type: ignore[import-untyped]  # likewise
import tensorboard.compat.proto.tensor_pb2 as tensors  # type: ignore[import-untyped]  # likewise
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
from tensorboard.compat.proto.types_pb2 import DT_STRING  # type: ignore[import-untyped]  # likewise
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import (  # type: ignore[import-untyped]  # likewise
    masked_crc32c,
)
from tensorboard.plugins.scalar.metadata import (  # type: ignore[import-untyped]  # likewise
    create_summary_metadata as scalar_metadata,
)
from tensorboard.plugins.text.metadata import (  # type: ignore[import-untyped]  # likewise
    create_summary_metadata,
)
from tensorboard.summary.writer.record_writer import (  # type: ignore[import-untyped]  # likewise
    RecordWriter,
)

from vedette_rl.core import Record
from vedette_rl.recording.file_recorder import FileRecorder
from vedette_rl.settings.plain_values import user_path
from vedette_rl.storage.atomic_files import replacing
from vedette_rl.storage.regular_files import open_regular

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
        folder = user_path(directory)
        place = f"{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        name = f"events.out.tfevents.{_stamp(folder, clock()):010d}.{place}"
        # The folder may be removed, to begin its curves anew; a run that is moved takes it along.
        home = folder.absolute().parent
        super().__init__(folder / name, "xb", clock, home=home)
        self._records = RecordWriter(self._file)
        self._describe: Callable[[str], str] | None = None
        self._described = set[str]()
        self._append(file_version="brain.Event:2")
        self._push()

    def describe_tags(self, describe: Callable[[str], str]) -> None:
        """Write a sentence with the first value of each curve, which TensorBoard shows.

        Args:
            describe: returns the sentence about a tag; "" for none.
        """
        self._describe = describe

    def write(self, record: Record, step: int) -> None:
        if record:
            summary = summaries.Summary()
            for name, value in record.items():
                added = summary.value.add(tag=name, simple_value=float(value))
                if self._describe is not None and name not in self._described:
                    self._described.add(name)
                    if sentence := self._describe(name):
                        added.metadata.CopyFrom(scalar_metadata(None, sentence))
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

        folder = os.fsencode(self.path.parent.resolve())
        name = folder.decode("utf-8", "replace")  # two runs of one configuration are two rows
        summary = hparams_pb(dict(hparams), trial_id=name, start_time_secs=self._clock())
        self._append(summary=summary, step=0)
        self._push()

    def _append(self, **fields: Any) -> None:
        event = events.Event(wall_time=self._clock(), **fields)
        with self._recording():
            self._records.write(event.SerializeToString())


def _stamp(directory: Path, now: float) -> int:
    """The number by which a new event file stands behind the others, whose names are their order:
    the second, or one more than the newest's where the clock was set back since."""
    stamps = (path.name.split(".")[3] for path in directory.glob("events.out.tfevents.*"))
    newest = max((int(stamp) for stamp in stamps if stamp.isdecimal()), default=-1)
    return max(int(now), newest + 1)


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

    A file that is changed is replaced at once by what stays of it; others are left alone. Steps
    grow within a file, so of a large one whose end has nothing to remove no more is read.

    Args:
        directory: the folder of event files; it may be missing.
        after: the last step that stays.
        concerns: True if a curve of this name counts those steps.

    Raises:
        OSError: a file cannot be read or replaced.
    """
    purge = _Purge(after, concerns)
    for path in sorted(Path(directory).glob("events.out.tfevents.*")):
        with open_regular(path) as file:
            if not purge.take_end(file):
                purge.take_whole(file, path)
    return PurgeResult(purge.removed, purge.last_other_step, purge.last_other_values)


class _Purge:
    """A purge of one file after the other, the oldest first.

    Args:
        after, concerns: as of `purge_events`.
    """

    def __init__(self, after: int, concerns: Callable[[str], bool]) -> None:
        self._after = after
        self._concerns = concerns
        self.removed = 0
        self.last_other_step = 0
        self.last_other_values = dict[str, float]()

    def take_end(self, file: BinaryIO) -> bool:
        """Take the end of a large file; False if all of it has to be read."""
        size = os.fstat(file.fileno()).st_size
        if size <= _END_BYTES:
            return False
        file.seek(size - _END_BYTES)
        end = file.read(_END_BYTES)
        found = list(map(parse_event, iterate_records(end[find_record(end) :])))
        steps = [event.step for event in found if self._is_concerned(event)]
        if not steps or max(steps) > self._after:
            return False
        for event in found:
            self._note_other(event)
        return True

    def take_whole(self, file: BinaryIO, path: Path) -> None:
        """Take a file record by record, and replace it if some of them go."""
        file.seek(0)
        with ExitStack() as held:
            kept: BinaryIO | None = None
            read_bytes = 0
            for record in _stream_records(file):
                event = parse_event(record)
                if self._is_concerned(event) and event.step > self._after:
                    self.removed += 1
                    if kept is None:
                        aside = held.enter_context(replacing(path))
                        kept = held.enter_context(aside.open("wb"))
                        _copy_head(path, kept, read_bytes)
                else:
                    self._note_other(event)
                    if kept is not None:
                        kept.write(record)
                read_bytes += len(record)
            if kept is not None:
                kept.flush()
                times = os.fstat(file.fileno())
                os.utime(kept.fileno(), ns=(times.st_atime_ns, times.st_mtime_ns))

    def _is_concerned(self, event: Any) -> bool:  # an untyped Event, or None
        names = [] if event is None else [value.tag for value in event.summary.value]
        return bool(names) and all(map(self._concerns, names))

    def _note_other(self, event: Any) -> None:  # likewise
        if event is None or not event.summary.value or self._is_concerned(event):
            return
        self.last_other_step = max(self.last_other_step, event.step)
        self.last_other_values.update((one.tag, one.simple_value) for one in event.summary.value)


_END_BYTES = 8 << 20
"""The end of a large file that is read first: some ten thousand records. The last value of a curve
which is not among them counts as unknown."""

_PIECE_BYTES = 1 << 20


def _stream_records(file: BinaryIO) -> Iterator[bytes]:
    """Read the records of `iterate_records` one by one."""
    left = os.fstat(file.fileno()).st_size
    while left >= _LENGTH_BYTES:
        head = file.read(_LENGTH_BYTES)
        rest = int.from_bytes(head[:8], "little") + _CHECKSUM_BYTES
        left -= _LENGTH_BYTES + rest
        if left < 0:
            return
        yield head + file.read(rest)


def _copy_head(path: Path, to: BinaryIO, count: int) -> None:
    """Copy the first bytes of a file."""
    with path.open("rb") as file:
        while count and (piece := file.read(min(count, _PIECE_BYTES))):
            to.write(piece)
            count -= len(piece)


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


class Scalars(NamedTuple):
    """The scalars of an event; no names where it has none."""

    names: tuple[str, ...]
    step: int
    time_s: float
    values: Sequence[float]


class ScalarParser:
    """Parses the scalars of events, of which most have the same names as one before.

    The bytes of such a summary are the same but for the values. They are taken from their places
    there: protobuf takes four times as long.
    """

    def __init__(self) -> None:
        self._layouts: dict[tuple[int, bytes], _SummaryLayout] = {}

    def parse(self, record: bytes) -> Scalars | None:
        """Return the scalars of a record; None where it holds no event."""
        head = _EventHead.parse(record)
        if head is None:
            return self._parse_event(record)
        summary = record[head.end : -_CHECKSUM_BYTES]
        layout = self._layouts.get(_layout_key(summary))
        if layout is not None:
            pieces = layout.fields.unpack(summary)
            if pieces[::2] == layout.constant:
                return Scalars(layout.names, head.step, head.time_s, pieces[1::2])
        found = self._parse_event(record)
        if found is not None and found.names:
            layout = _SummaryLayout.of(found.names)
            if layout.fields.size == len(summary):
                self._layouts[_layout_key(summary)] = layout
        return found

    def _parse_event(self, record: bytes) -> Scalars | None:
        event = parse_event(record)
        if event is None:
            return None
        scalars = [v for v in event.summary.value if v.WhichOneof("value") == "simple_value"]
        return Scalars(
            tuple(value.tag for value in scalars),
            event.step,
            event.wall_time,
            [value.simple_value for value in scalars],
        )


class _EventHead(NamedTuple):
    """What is before the summary in an event as protobuf writes it; `end`: where that begins."""

    step: int
    time_s: float
    end: int

    @classmethod
    def parse(cls, record: bytes) -> _EventHead | None:
        """Return it; None where an event is written in another way."""
        place = _LENGTH_BYTES + 10
        is_timed = record[_LENGTH_BYTES : _LENGTH_BYTES + 1] == b"\x09"
        if not is_timed or record[place - 1 : place] != b"\x10":
            return None
        step = 0
        shift = 0
        while place < len(record) and shift < 63:
            byte = record[place]
            place += 1
            step |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                (time_s,) = _DOUBLE.unpack_from(record, _LENGTH_BYTES + 1)
                return cls(step, time_s, place)
        return None


@dataclass(frozen=True, slots=True)
class _SummaryLayout:
    """The bytes of a summary of scalars with these names.

    Args:
        fields: bytes that are always the same, and a value, in turn.
        constant: those bytes.
    """

    names: tuple[str, ...]
    fields: struct.Struct
    constant: tuple[bytes, ...]

    @classmethod
    def of(cls, names: tuple[str, ...]) -> _SummaryLayout:
        """Return the layout in which protobuf writes them."""
        tags = [b"\x0a" + _varint(len(tag)) + tag + b"\x15" for tag in map(str.encode, names)]
        heads = [b"\x0a" + _varint(len(tag) + _FLOAT_BYTES) + tag for tag in tags]
        size = sum(map(len, heads)) + _FLOAT_BYTES * len(heads)
        heads[0] = b"\x2a" + _varint(size) + heads[0]
        fields = struct.Struct("<" + "".join(f"{len(head)}sf" for head in heads))
        return cls(names, fields, tuple(heads))


_FLOAT_BYTES = 4
_DOUBLE = struct.Struct("<d")


def _layout_key(summary: bytes) -> tuple[int, bytes]:
    return len(summary), summary[:12]  # most of the first name


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def parse_event(record: bytes) -> Any:  # an untyped Event
    """The event of a record; None where the record holds no event."""
    try:
        return events.Event.FromString(record[_LENGTH_BYTES:-_CHECKSUM_BYTES])
    except DecodeError:
        return None
