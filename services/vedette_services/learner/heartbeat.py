"""Writes the heartbeat of a process of the learner: a thread, beside the loop that it watches."""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from vedette_rl.errors import LatestValueFormatError, MapSpaceError, OneWriterError
from vedette_services.status.records import Heartbeat, StatusRecordWriter

log = logging.getLogger("vedette.learner")

_EVERY_S = 1.0
_AWAY_S = 2.0  # a loop that has not come round for so long is looked for

_COMPILERS = ("torch/_dynamo/convert_frame.py", "torch/_inductor/compile_fx.py")
"""They are on the stack while networks are compiled, and not while what was compiled runs."""
_DEBUGGERS = frozenset({"debugpy", "pydevd"})
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))


class HeartbeatThread:
    """Writes a `Heartbeat` every second, of the thread that makes this.

    ::

        heartbeat = HeartbeatThread(run.heartbeat_map("trainer"))
        while ...:
            heartbeat.mark_turn()

    A process that is stopped writes none. One that is stuck in a call writes where: only code that
    holds Python's interpreter lock for long keeps this thread from it.

    Args:
        path: the map.
        every_s: the time from one to the next.
    """

    def __init__(self, path: Path, *, every_s: float = _EVERY_S) -> None:
        self._watched = threading.get_ident()
        self._every_s = every_s
        self._turn_s = 0.0
        self._place: tuple[tuple[int, int], ...] = ()
        now = time.monotonic()
        self._last = Heartbeat(pid=os.getpid(), began_s=now, beat_s=now, moved_s=now)
        self._closed = threading.Event()
        self._record = _open_record(path)
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        if self._record is not None:
            self._thread.start()

    def mark_turn(self) -> None:
        """Note that the loop has come round; cheap."""
        self._turn_s = time.monotonic()

    def close(self) -> None:
        """Write no more."""
        self._closed.set()
        if self._record is not None:
            self._thread.join()
            self._record.close()

    def _run(self) -> None:
        assert self._record is not None, "the thread is started with one"
        while not self._closed.is_set():
            self._last = self._beat()
            self._record.write(self._last)
            self._closed.wait(self._every_s)

    def _beat(self) -> Heartbeat:
        """Make the heartbeat of this moment."""
        now = time.monotonic()
        frames = list(_frames(sys._current_frames().get(self._watched)))
        place = tuple((id(frame.f_code), frame.f_lasti) for frame in frames)
        moved_s = now if place != self._place else self._last.moved_s
        self._place = place
        last = replace(
            self._last,
            beat_s=now,
            turn_s=self._turn_s,
            moved_s=moved_s,
            place="",
            compiles=False,
            debugged=False,
        )
        if now - max(self._turn_s, self._last.began_s) < _AWAY_S:
            return last
        return replace(
            last,
            place=_describe_place(frames),
            compiles=any(frame.f_code.co_filename.endswith(_COMPILERS) for frame in frames),
            debugged=_is_debugged(frames),
        )


def _open_record(path: Path) -> StatusRecordWriter[Heartbeat] | None:
    """Open the map; None where that fails, as on a full disk: a process then works unwatched."""
    try:
        return StatusRecordWriter(path, Heartbeat)
    except (MapSpaceError, LatestValueFormatError, OneWriterError) as error:
        log.warning("no heartbeat is written: %s", error)
        return None


def _frames(innermost: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that called it."""
    frame = innermost
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_debugged(frames: list[FrameType]) -> bool:
    """Return True if a debugger is loaded; one that traces lines, as coverage too, counts."""
    return not _DEBUGGERS.isdisjoint(sys.modules) or any(frame.f_trace for frame in frames)


def _describe_place(frames: list[FrameType]) -> str:
    """Return file, line and function of the innermost frame that is neither Python's nor torch's,
    and of the innermost one."""
    if not frames:
        return ""
    chosen = next((frame for frame in frames if not _is_library(frame)), frames[0])
    return " > ".join(_describe_frame(frame) for frame in dict.fromkeys((chosen, frames[0])))


def _is_library(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    of_python = name.startswith(_LIBRARIES) and "site-packages" not in name
    return of_python or "site-packages/torch/" in name or name.startswith("<frozen")


def _describe_frame(frame: FrameType) -> str:
    code = frame.f_code
    return f"{'/'.join(Path(code.co_filename).parts[-2:])}:{frame.f_lineno} {code.co_name}"


class TurnRecord:
    """Writes a heartbeat from the loop itself, at most once a second, without a thread.

    Args:
        path: the map.
        bounded: False: the loop may take as long as it likes.
    """

    def __init__(self, path: Path, *, bounded: bool = True) -> None:
        self._record = _open_record(path)
        now = time.monotonic()
        self._last = Heartbeat(
            pid=os.getpid(), began_s=now, beat_s=now, moved_s=now, bounded=bounded
        )

    def mark_turn(self) -> None:
        """Note that the loop has come round; cheap."""
        now = time.monotonic()
        if self._record is not None and now - self._last.turn_s >= _EVERY_S:
            self._last = replace(self._last, beat_s=now, turn_s=now, moved_s=now)
            self._record.write(self._last)

    def close(self) -> None:
        """Write no more."""
        if self._record is not None:
            self._record.close()


def announce_start(path: Path) -> None:
    """Write the first heartbeat of a process that is about to be started.

    An earlier process of the same name, whose last one is there, counts no more.
    """
    record = _open_record(path)
    if record is not None:
        now = time.monotonic()
        record.write(Heartbeat(began_s=now, beat_s=now))
        record.close()
