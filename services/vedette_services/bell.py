"""An event between processes of one host: rung by one, heard by another that waits for more."""

from __future__ import annotations

import os


class Bell:
    """Rings that nobody has heard yet are one. It has no file: children inherit its descriptor.

    ::

        bell = Bell()                                          # in the parent
        spawn([..., str(bell.fileno())], pass_fds=[bell.fileno()])
        bell = Bell(int(sys.argv[1]))                          # in a child
        bell.ring()                                            # in another
        poll(bell.fileno()); bell.hush()

    A child that dies takes nothing with it: the parent holds the bell.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        flags = os.EFD_NONBLOCK | os.EFD_CLOEXEC
        self._descriptor = os.eventfd(0, flags) if descriptor is None else descriptor

    def fileno(self) -> int:
        """Readable from a ring until `hush`."""
        return self._descriptor

    def ring(self) -> None:
        """Wake who waits; never waits itself."""
        try:
            os.eventfd_write(self._descriptor, 1)
        except BlockingIOError:
            return  # 2**64 rings: it is loud enough

    def hush(self) -> None:
        """All rings so far are heard."""
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)
