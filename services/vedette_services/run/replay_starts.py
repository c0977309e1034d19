"""The starts that have written a replay, by which it is known whether a snapshot is of it.

``starts.json`` lies beside the rows of a replay that has a snapshot, or had one. So it is always as
old as they are, on a disk that is put back, too. The number of rows, an epoch or a counter does not
tell one replay from another one that has grown again; the random name of a start does.

::

    starts = mark_start(replay, inserted)       # each start, before it answers
    starts.end_of(generation.start, inserted) >= generation.ring.inserted    # it goes on from it
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vedette_rl.errors import ReplayTornError
from vedette_rl.storage.atomic_files import json_text, replace_file
from vedette_rl.storage.regular_files import read_json

STARTS = "starts.json"
STARTS_MAX = 4096
"""Starts that are kept. A snapshot that was out of reach for so many belongs to nobody."""


@dataclass(frozen=True, slots=True)
class ReplayStart:
    """A start of the learner.

    Args:
        name: 16 random hexadecimal digits.
        first: the number of the first row that it could write.
    """

    name: str
    first: int


@dataclass(frozen=True, slots=True)
class ReplayStarts:
    """The content of ``starts.json``.

    Args:
        starts: oldest first.
        reserved: the highest epoch that a start may take while it cannot reach the snapshot: no
            start from the snapshot takes it, or a lower one.
        snapshot: the directory in which a generation was verified last; "": none was.
        is_mount: a disk was mounted there.
    """

    starts: tuple[ReplayStart, ...] = ()
    reserved: int = 0
    snapshot: str = ""
    is_mount: bool = False

    @classmethod
    def read(cls, replay: Path) -> ReplayStarts:
        """Read those of a replay; none where it never had a snapshot.

        Raises:
            ReplayTornError: the file cannot be read.
        """
        path = replay / STARTS
        try:
            found = read_json(path)
            starts = starts_from_json(found["starts"])
            reserved = int(found["reserved"])
            return cls(starts, reserved, str(found["snapshot"]), bool(found["is_mount"]))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ReplayTornError(path, f"cannot be read ({error})") from error

    def write(self, replay: Path) -> None:
        """Make these those of a replay; the disk has them then."""
        replace_file(replay / STARTS, json_text(asdict(self)), durable=True)

    def with_start(self, inserted: int) -> ReplayStarts:
        """Return these with another start, whose first row will have this number."""
        start = ReplayStart(secrets.token_hex(8), inserted)
        return replace(self, starts=(*self.starts, start)[-STARTS_MAX:])

    @property
    def newest(self) -> str:
        """The name of the last start."""
        return self.starts[-1].name

    def end_of(self, name: str, inserted: int) -> int:
        """Return the number behind the last row of a start; -1: it is no start of this replay.

        Args:
            inserted: the rows of the replay.
        """
        names = [start.name for start in self.starts]
        if name not in names:
            return -1
        later = self.starts[names.index(name) + 1 :]
        return min([inserted, *(start.first for start in later)])


def mark_start(replay: Path, inserted: int) -> ReplayStarts:
    """Mark a start in a replay, before its first row; the disk has the mark then.

    Args:
        inserted: the rows of the replay.
    """
    starts = ReplayStarts.read(replay).with_start(inserted)
    starts.write(replay)
    return starts


def starts_from_json(found: Any) -> tuple[ReplayStart, ...]:  # checked here
    """Read starts as `dataclasses.asdict` gives them.

    Raises:
        KeyError, TypeError, ValueError: they are none.
    """
    return tuple(ReplayStart(str(start["name"]), int(start["first"])) for start in found)
