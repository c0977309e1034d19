"""A pool of large buffers."""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

LARGE_BYTES = 32 << 20
"""At this size glibc's malloc gives memory back to the system as soon as it is free."""


_POOLED = 2
"""The newest value's memory, and that of the one before while a reader changes over."""


class BufferPool:
    """Gives arrays of bytes, large ones in the memory of earlier ones that are free again.

    Getting a large array's pages costs more than filling them.
    A view of an array, or a `memoryview` of one, holds it.

    Args:
        large_bytes: the least size; smaller buffers are left to malloc.
    """

    def __init__(self, large_bytes: int = LARGE_BYTES) -> None:
        self._large_bytes = large_bytes
        self._free: deque[memoryview] = deque(maxlen=_POOLED)

    def allocate(self, length: int) -> NDArray[np.uint8]:
        """An array of `length` bytes, which may be anything."""
        if length < self._large_bytes:
            return np.empty(length, np.uint8)
        memory = self._reuse_earlier()
        if memory is None or memory.nbytes < length:
            memory = np.empty(length, np.uint8).data  # numpy's: its pages come many at a time
        # Over a memoryview, so that views keep this very array, and not what is below it, alive.
        array = np.frombuffer(memory, np.uint8, length)
        weakref.finalize(array, self._free.append, memory).atexit = False
        return array

    def _reuse_earlier(self) -> memoryview | None:
        try:
            return self._free.popleft()
        except IndexError:  # not tested before: several threads may read
            return None
