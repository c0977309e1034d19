"""A recorder that gives way: it writes nothing while something else needs the disk's room."""

from __future__ import annotations

from collections.abc import Callable

from vedette_rl.core import Record, Recorder


class PausingRecorder:
    """Gives everything to a recorder, but for the time in which that is to write nothing.

    What is stored meanwhile is part of the next means.

    Args:
        recorder: the one that writes.
        is_paused: asked before each write.
    """

    def __init__(self, recorder: Recorder, is_paused: Callable[[], bool]) -> None:
        self._recorder = recorder
        self._is_paused = is_paused

    def write(self, record: Record, step: int) -> None:
        if not self._is_paused():
            self._recorder.write(record, step)

    def store(self, record: Record) -> None:
        self._recorder.store(record)

    def flush(self, step: int) -> None:
        if not self._is_paused():
            self._recorder.flush(step)

    def write_text(self, name: str, text: str) -> None:
        if not self._is_paused():
            self._recorder.write_text(name, text)

    def close(self) -> None:
        self._recorder.close()
