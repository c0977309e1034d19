"""A process's hold on the replay that it has mapped: it is still the one at its path.

::

    hold = ReplayHold(directory)
    hold.check()                    # before a process maps the replay anew

A replay that is removed stays mapped where it was, and a process that opens the path would make
another one, of which the others know nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from vedette_rl.replay.ring_files import CURSOR
from vedette_services.errors import ReplayGoneError


class ReplayHold:
    """What tells a mapped replay from another one that lies at its path.

    Args:
        directory: the replay's, which is open.

    Raises:
        OSError: there is none.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cursor = os.open(directory / CURSOR, os.O_RDONLY)

    def close(self) -> None:
        """Close the file by which the replay is known."""
        os.close(self._cursor)

    def find_loss(self) -> ReplayGoneError | None:
        """Look whether the replay is still at its path; return what has become of it.

        A disk that does not answer well is no proof of anything: it is found out by other means.
        """
        try:
            there = (self._directory / CURSOR).stat()
        except FileNotFoundError:
            return ReplayGoneError(self._directory, "removed", "an empty one")
        except OSError:
            return None
        if os.path.samestat(there, os.fstat(self._cursor)):
            return None
        return ReplayGoneError(self._directory, "replaced", "the one that is there")

    def check(self) -> None:
        """Check that the replay is still at its path.

        Raises:
            ReplayGoneError: it is not.
        """
        if loss := self.find_loss():
            raise loss
