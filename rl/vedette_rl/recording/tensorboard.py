"""TensorBoard's event files, written without torch or TensorFlow.

A file is a sequence of records ``length u64, masked crc32c of it, event, masked crc32c of it``.
Writing is synchronous and buffered: TensorBoard's own writer hands events to a thread and tells of
a full disk at some later call.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorboard.compat.proto.event_pb2 as events  # type: ignore[import-untyped]  # ships no types
import tensorboard.compat.proto.summary_pb2 as summaries  # type: ignore[import-untyped]  # likewise
import tensorboard.compat.proto.tensor_pb2 as tensors  # type: ignore[import-untyped]  # likewise
from tensorboard.compat.proto.types_pb2 import DT_STRING  # type: ignore[import-untyped]  # likewise
from tensorboard.plugins.text.metadata import (  # type: ignore[import-untyped]  # likewise
    create_summary_metadata,
)
from tensorboard.summary.writer.record_writer import (  # type: ignore[import-untyped]  # likewise
    RecordWriter,
)

from vedette_rl.core import Record
from vedette_rl.errors import RecordingError
from vedette_rl.recording.means import Means

_files = itertools.count()


class TensorboardRecorder:
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
        self._clock, self._means = clock, Means()
        place = f"{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        self.path = Path(directory) / f"events.out.tfevents.{int(clock()):010d}.{place}"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("xb")
        except OSError as e:
            raise RecordingError(self.path, e) from e
        self._records = RecordWriter(self._file)
        self._append(file_version="brain.Event:2")
        self._push()

    def write(self, record: Record, step: int) -> None:
        """Write scalars now."""
        if record:
            summary = summaries.Summary()
            for name, value in record.items():
                summary.value.add(tag=name, simple_value=float(value))
            self._append(summary=summary, step=step)

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name."""
        self._means.store(record)

    def flush(self, step: int) -> None:
        """Write what was stored, and push everything written so far out to the disk."""
        self.write(self._means.pop_means(), step)
        self._push()

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

    def close(self) -> None:
        """Flush and let go; what was stored and not flushed is left out, for want of a step."""
        try:
            self._file.close()
        except OSError as e:
            raise RecordingError(self.path, e) from e

    def _append(self, **fields: Any) -> None:
        event = events.Event(wall_time=self._clock(), **fields)
        try:
            self._records.write(event.SerializeToString())
        except OSError as e:
            raise RecordingError(self.path, e) from e

    def _push(self) -> None:
        try:
            self._file.flush()
        except OSError as e:
            raise RecordingError(self.path, e) from e
