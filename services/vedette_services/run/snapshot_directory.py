"""A directory of snapshots: generations of one run, of which the newest counts.

::

    DIR/generation-00000012            its rows, ledger and files, by name; and who wrote it
    DIR/rows-START-PROCESS-N           parts of rows (`vedette_rl.replay.ring_parts`)
    DIR/frames-START-PROCESS-N         of what rows share
    DIR/archive-START-PROCESS-N        of the replay's archive
    DIR/file-START-PROCESS-N           a checkpoint's file, the settings, ...

A generation is created under its number once and for all: of two learners that make the same
number one finds it taken. It continues the newest one by that one's random name: this must be the
newest still once it is written aside, in the directory, since then nobody can put another content
in the directory's place and have it linked. What it lists is on the disk before it is created, and
is never changed; so a reader needs no lock, and a writer that is killed at any instruction leaves
the generation before.

Who is replaced finds out by descent (`is_stranger`): the newest generation was written by a start
that its own replay does not know, or has more rows than that start wrote here.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import struct
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vedette_rl.errors import ReplayFormatError
from vedette_rl.replay.commits import STAMP_MAX_BYTES
from vedette_rl.replay.manifest import manifest_from_json, manifest_to_json
from vedette_rl.replay.ring_files import Branch
from vedette_rl.replay.ring_parts import BLOCK_BYTES, Part, RingState
from vedette_rl.storage.atomic_files import sync_directory
from vedette_rl.storage.regular_files import open_regular, parse_json
from vedette_rl.storage.system import sync_file
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import SnapshotFormatError
from vedette_services.run.replay_starts import ReplayStart, ReplayStarts, starts_from_json

EPOCHS_RESERVED = 1000
"""An epoch counts each start of the trainer."""

_KEPT = 2  # generations, with what they list: of one that is damaged the one before is left
_NAME = re.compile(r"generation-(\d{8,})")
_UNFINISHED = re.compile(r"\.generation-(\d{8,})\.[0-9a-f]+\.new")
_LISTED = re.compile(r"(rows|frames|archive|file)-([0-9a-f]{16})-[0-9a-f]{8}-\d+")
_CHECKPOINT = re.compile(r"checkpoints/(\d+)/")
_MAGIC = b"vdtsnap1"
_HEAD = struct.Struct("<8sQQ")  # magic, bytes of the JSON, bytes of the stamp
_DIGEST_BYTES = 16
_FORMAT = 1
_Version = tuple[int, int, int]  # of a file: inode, size and time of the last write
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the run directory, and where the snapshot has it.

    Args:
        path: in the run directory.
        name: in the snapshot.
        size: its bytes.
        digest: hexadecimal, of its content.
    """

    path: str
    name: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Generation:
    """One state of a run.

    Args:
        number: its place in the order.
        name: random.
        parent: the name of the one that was the newest; "": there was none.
        start: of the learner that wrote it.
        starts: of its replay.
        reserved: the highest epoch that starts of this learner may take without asking.
        identity: the run's, as ``run.json`` has it.
        ring: its replay.
        files: those of the run directory.
        host: on which it was written.
        time_s: when, in seconds since 1970.
    """

    number: int
    name: str
    parent: str
    start: str
    starts: tuple[ReplayStart, ...]
    reserved: int
    identity: dict[str, Any]
    ring: RingState
    files: tuple[StoredFile, ...]
    host: str
    time_s: float

    @property
    def listed(self) -> dict[str, int]:
        """The names of the files that it needs, each with the bytes that it has at least."""
        sizes = {part.name: part.size for part in self.ring.parts}
        return sizes | {file.name: file.size for file in self.files}

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"generation-{self.number:08}"

    @property
    def opt_steps(self) -> int | None:
        """The optimization steps of its checkpoint; None: it has none."""
        found = (_CHECKPOINT.match(file.path) for file in self.files)
        return next((int(m[1]) for m in found if m), None)

    def __str__(self) -> str:
        return f"generation {self.number} of {self.host}, {self.ring.inserted:,} rows"

    def to_bytes(self) -> bytes:
        """The content of its file."""
        ring = self.ring
        head = {
            "format": _FORMAT,
            "number": self.number,
            "name": self.name,
            "parent": self.parent,
            "start": self.start,
            "starts": [asdict(start) for start in self.starts],
            "reserved": self.reserved,
            "identity": self.identity,
            "manifest": manifest_to_json(ring.manifest),
            "inserted": ring.inserted,
            "shared": ring.shared,
            "floor": ring.floor,
            "branch": [ring.branch.id.hex(), ring.branch.begin, ring.branch.before.hex()],
            "rows": ring.rows,
            "frames": ring.frames,
            "archive": ring.archive,
            "files": [asdict(file) for file in self.files],
            "host": self.host,
            "time_s": self.time_s,
        }
        text = json.dumps(head).encode()
        content = _HEAD.pack(_MAGIC, len(text), len(ring.stamp)) + text + ring.stamp
        return content + _digest(content)

    @classmethod
    def from_bytes(cls, content: bytes, path: Path) -> Generation:
        """Read the content of a file.

        Raises:
            ReplayFormatError: it is not whole.
            SnapshotFormatError: it is of a later release.
        """
        body = content[:-_DIGEST_BYTES]
        if len(content) < _HEAD.size + _DIGEST_BYTES or _digest(body) != content[-_DIGEST_BYTES:]:
            raise ReplayFormatError(f"{path} is not whole")
        magic, text, stamp = _HEAD.unpack_from(body)
        if magic != _MAGIC or len(body) != _HEAD.size + text + stamp:
            raise ReplayFormatError(f"{path} is no generation of a snapshot")
        head = parse_json(body[_HEAD.size : _HEAD.size + text])
        if head["format"] != _FORMAT:
            raise SnapshotFormatError(path)
        branch = head["branch"]
        ring = RingState(
            manifest_from_json(head["manifest"], path),
            head["inserted"],
            head["shared"],
            head["floor"],
            Branch(bytes.fromhex(branch[0]), branch[1], bytes.fromhex(branch[2])),
            tuple(Part(*part) for part in head["rows"]),
            tuple(Part(*part) for part in head["frames"]),
            tuple(Part(*part) for part in head["archive"]),
            body[_HEAD.size + text :],
        )
        return cls(
            head["number"],
            head["name"],
            head["parent"],
            head["start"],
            starts_from_json(head["starts"]),
            head["reserved"],
            head["identity"],
            ring,
            tuple(StoredFile(**file) for file in head["files"]),
            head["host"],
            head["time_s"],
        )


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """A directory at one moment.

    Args:
        next_number: no generation has it, or a higher one.
        newest: the newest generation that can be read; None: there is none.
        unreadable: the names of files above it: of writers that were killed, or damaged.
        wholes: those that can be read and whose files are all there, newest first.
        reserved: the highest epoch that any of them reserves.
    """

    next_number: int
    newest: Generation | None
    unreadable: tuple[str, ...]
    wholes: tuple[Generation, ...]
    reserved: int

    @property
    def whole(self) -> Generation | None:
        """The newest one whose files are all there; None: there is none."""
        return self.wholes[0] if self.wholes else None

    @property
    def newest_name(self) -> str:
        """The name of the newest generation; "": there is none."""
        return self.newest.name if self.newest is not None else ""


class SnapshotDirectory:
    """Reads and writes the generations of a directory.

    Every method raises an OSError where the directory cannot be reached or written, and a
    SnapshotFormatError where a later release writes there.

    Args:
        root: the directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: dict[str, tuple[_Version, Generation]] = {}  # by the names of files

    def look(self) -> SnapshotView:
        """Read what is there."""
        there = self._names()
        numbered = _numbered(there)
        found: list[Generation] = []
        unreadable: list[str] = []
        for _, name in reversed(numbered):
            with contextlib.suppress(FileNotFoundError):  # just removed as an old one
                try:
                    found.append(self._generation(name))
                except ReplayFormatError:
                    unreadable += [] if found else [name]
        self._read = {name: self._read[name] for _, name in numbered if name in self._read}
        return SnapshotView(
            next_number=numbered[-1][0] + 1 if numbered else 1,
            newest=found[0] if found else None,
            unreadable=tuple(unreadable),
            wholes=tuple(one for one in found if self._has_all(one, there)),
            reserved=max((one.reserved for one in found), default=0),
        )

    def create(self, generation: Generation) -> bool:
        """Create a generation, whose files the disk has, and verify it; False: it continues another
        one than the newest, another one has the number, or something that it needs has gone. Then
        begin anew."""
        path = self.root / generation.file_name
        aside = self.root / f".{path.name}.{generation.name}.new"
        sync_directory(self.root)  # the names of what it lists
        try:
            with aside.open("xb") as file:
                file.write(generation.to_bytes())
                file.flush()
                sync_file(file.fileno())
            # What is put in the directory's place from now on does not have what is linked.
            if self.look().newest_name != generation.parent or not _publish(aside, path):
                return False
        finally:
            with contextlib.suppress(OSError):  # what is left of it is no generation
                aside.unlink(missing_ok=True)
        sync_directory(self.root)
        view = self.look()
        return view.newest is view.whole and view.newest_name == generation.name

    def prune(self, own_starts: Iterable[str]) -> None:
        """Remove what no generation that is kept needs: of older ones, and of starts of this replay
        that have ended. Files of other starts stay: they may be those of a successor, who lists
        them in a moment.

        Call it after `create` has returned True.

        Args:
            own_starts: the starts of this replay, but for the one that runs.
        """
        there = self._names()
        numbered = _numbered(there)
        old = [name for _, name in numbered[:-_KEPT]]
        kept: set[str] = set()
        for _, name in numbered[-_KEPT:]:
            with contextlib.suppress(ReplayFormatError, FileNotFoundError):
                kept |= self._generation(name).listed.keys()
        unneeded: set[str] = set()
        for name in old:
            with contextlib.suppress(ReplayFormatError, FileNotFoundError):
                unneeded |= self._generation(name).listed.keys()
        ended = frozenset(own_starts)
        unneeded |= {name for name in there if (m := _LISTED.fullmatch(name)) and m[2] in ended}
        unneeded |= {
            name
            for name in there
            if (m := _UNFINISHED.fullmatch(name)) and int(m[1]) <= numbered[-1][0]
        }
        for name in [*(unneeded - kept), *old]:  # the generations last: they say what to remove
            (self.root / name).unlink(missing_ok=True)

    def remove_leftovers(self, writer: str) -> None:
        """Remove what a process has written and no generation lists.

        Args:
            writer: `START-PROCESS` in the names of its files.
        """
        there = self._names()
        kept: set[str] = set()
        for _, name in _numbered(there):
            with contextlib.suppress(ReplayFormatError, FileNotFoundError):
                kept |= self._generation(name).listed.keys()
        for name in there - kept:
            if _LISTED.fullmatch(name) and f"-{writer}-" in name:
                (self.root / name).unlink(missing_ok=True)

    def describe_missing(self, generation: Generation) -> str:
        """Describe a file of a generation that is not there, or too short; "" where there is
        none."""
        for name, size in generation.listed.items():
            path = self.root / name
            try:
                has = path.stat().st_size
            except FileNotFoundError:
                return f"{path} is missing"
            if has < size:
                return f"{path} is cut short: it has {has:,} of {size:,} bytes"
        return ""

    def _has_all(self, generation: Generation, there: set[str]) -> bool:
        """Return True if the files that a generation needs are there, and have their bytes."""
        return generation.listed.keys() <= there and not self.describe_missing(generation)

    def _names(self) -> set[str]:
        with os.scandir(self.root) as entries:
            return {entry.name for entry in entries}

    def _generation(self, name: str) -> Generation:
        path = self.root / name
        status = path.stat()
        # A generation never changes, but another directory's may have come in its place.
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        before, known = self._read.get(name, (None, None))
        if known is None or version != before:
            with open_regular(path) as file:
                content = file.read(_HEAD.size + STAMP_MAX_BYTES + (64 << 20))
            try:
                known = Generation.from_bytes(content, path)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise ReplayFormatError(f"{path} is damaged ({error})") from error
            self._read[name] = version, known
        return known


def named_generation(path: Path) -> tuple[Path, str]:
    """Return the directory that a path names, and the name of the generation where it names one of
    these files; "": it names the directory."""
    return (path.parent, path.name) if _NAME.fullmatch(path.name) else (path, "")


def snapshot_root(config: RunConfig) -> Path | None:
    """Return the directory of a run's snapshot; None: it has none."""
    named = config.learner.snapshot
    return None if named is None else Path(named).absolute()


def check_in_place(root: Path, starts: ReplayStarts) -> None:
    """Check that a snapshot's directory is in its place, or may be made there: one in which a
    generation of this replay was verified on a mounted disk is not, while that is not mounted.

    Raises:
        OSError: gives the reason.
    """
    if root.is_symlink() and not root.exists():
        why = f"it is a link to {root.readlink()}, and there is nothing"
        raise OSError(errno.ENOENT, why, str(root))
    if root.exists() and not root.is_dir():
        raise OSError(errno.ENOTDIR, "it is no folder", str(root))
    if starts.snapshot == str(root) and starts.is_mount and not root.is_mount():
        raise OSError(errno.ENOTCONN, "its disk is not mounted", str(root))


def is_stranger(newest: Generation, starts: ReplayStarts, inserted: int) -> bool:
    """Return True if a replay is no descendant of the newest generation.

    Args:
        starts: of the replay.
        inserted: its rows.
    """
    return starts.end_of(newest.start, inserted) < newest.ring.inserted


def _numbered(names: Iterable[str]) -> list[tuple[int, str]]:
    """The generations among names, oldest first."""
    return sorted((int(m[1]), m[0]) for name in names if (m := _NAME.fullmatch(name)))


def new_digest() -> hashlib.blake2b:
    """Return a `StoredFile`'s digest, of nothing yet."""
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)


def file_digest(path: Path) -> str:
    """Return a `StoredFile`'s digest of a file.

    Raises:
        OSError: it cannot be read.
    """
    digest = new_digest()
    with open_regular(path) as file:
        while piece := file.read(BLOCK_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def new_name() -> str:
    """Return a random name."""
    return secrets.token_hex(8)


def _publish(aside: Path, path: Path) -> bool:
    """Give a file its name, unless there is one; False: there is."""
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _write_exclusively(path, aside.read_bytes())
    return True


def _write_exclusively(path: Path, content: bytes) -> bool:
    """The same on a file system without links. A kill meanwhile leaves a number without a
    generation, which nobody uses."""
    try:
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            sync_file(file.fileno())
    except FileExistsError:
        return False
    return True


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
