"""Check of the memory and disk that a replay needs, before anything starts."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vedette_rl.errors import ReplayBudgetError
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.checksums import checksums_file_bytes
from vedette_rl.replay.commits import COMMIT_MAX_BYTES, COMMIT_SLOTS
from vedette_rl.replay.manifest import SharedSpec
from vedette_rl.replay.ring_files import PAGE_BYTES
from vedette_rl.replay.rows import default_guard
from vedette_rl.replay.sequences import INDEX_ROW_BYTES
from vedette_rl.replay.sum_tree import tree_bytes
from vedette_rl.replay.syncing import synced_file_bytes
from vedette_rl.storage.control_groups import memory_left, read_lines
from vedette_rl.storage.latest_value import latest_value_file_bytes
from vedette_rl.storage.system import installed_memory

ROOT = Path("/")
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "hugetlbfs"})


@dataclass(frozen=True, slots=True)
class ReplaySpace:
    """Bytes of a replay.

    Args:
        rows_bytes: the columns, the guard's rows too, and what they share.
        drawing_bytes: priorities with their tree, and which rows of sequences follow one another; 0
            where single rows are drawn uniformly.
        capacity: rows that can be drawn.
    """

    rows_bytes: int
    drawing_bytes: int
    capacity: int

    @property
    def total_bytes(self) -> int:
        return self.rows_bytes + self.drawing_bytes

    def __str__(self) -> str:
        return f"replay: {self.capacity:,} samples need {format_bytes(self.total_bytes)}"


@dataclass(frozen=True, slots=True)
class OtherSpace:
    """Other space that will be taken, on the replay's disk or on another.

    Args:
        directory: the directory that takes it.
        more_bytes: the bytes that will be taken beyond those taken now.
    """

    directory: Path
    more_bytes: int


def replay_space(
    row_dtype: np.dtype[Any],
    capacity: int,
    *,
    prioritized: bool,
    sequences: bool = False,
    guard: int | None = None,
    keep: int = 0,
    shared: SharedSpec | None = None,
) -> ReplaySpace:
    """The space of a replay of this capacity: on disk and, for fast draws, in memory."""
    assert row_dtype.fields is not None, "a row dtype is structured"
    row_bytes = sum(field.itemsize for field, *_ in row_dtype.fields.values())
    guard = default_guard(capacity, row_dtype.itemsize) if guard is None else guard
    pages = PAGE_BYTES * (len(row_dtype.fields) + 2)
    rows_bytes = (
        row_bytes * (capacity + guard + keep)
        + pages
        + latest_value_file_bytes(COMMIT_MAX_BYTES, COMMIT_SLOTS)
        + synced_file_bytes()
    )
    rings = [(capacity + guard + keep, guard, len(row_dtype.fields))]
    if shared is not None:
        rings.append((shared.all_entries, shared.guard, len(shared.columns)))
        rows_bytes += shared.total_bytes + PAGE_BYTES * len(shared.columns)
    rows_bytes += checksums_file_bytes(rings)
    drawing_bytes = tree_bytes(capacity) if prioritized or sequences else 0
    if sequences:
        drawing_bytes += INDEX_ROW_BYTES * capacity
    return ReplaySpace(rows_bytes, drawing_bytes, capacity)


def check_budget(
    need: ReplaySpace,
    directory: Path,
    *,
    must_fit_memory: bool = True,
    other_space: OtherSpace | None = None,
    root: Path = ROOT,
    smaller: Callable[[int], str] = lambda room_bytes: "lower replay.capacity",
) -> str:
    """Compare a need with the memory and the disk that are free.

    Args:
        need: the memory and disk space that the replay takes.
        directory: the directory of its files; the space of files that are there is not counted
            again.
        must_fit_memory: False where the operator chose a disk for its size: drawing then reads
            the disk.
        other_space: other data that must have room, if on the same disk.
        root: the folder that has ``/proc`` and ``/sys``.
        smaller: says how the replay fits into a room of so many bytes.

    Returns:
        one line for the log: the need and what is free.

    Raises:
        ReplayBudgetError: there is too little of one; it names the need, what is free and the fix.
    """
    taken = used_disk_bytes(directory.glob("*"))
    free_disk = free_disk_bytes(directory)
    in_memory = file_system(directory, root) in MEMORY_FILE_SYSTEMS
    more = (
        other_space.more_bytes if other_space and same_disk(other_space.directory, directory) else 0
    )
    free_memory = available_memory(root) + (taken if in_memory else 0)
    room = free_disk + taken - more
    if must_fit_memory or in_memory:
        room = min(room, free_memory)
    if need.total_bytes + more > free_disk + taken:
        # Said only where it makes the difference.
        others = ""
        if other_space and need.total_bytes <= free_disk + taken:
            others = f", and {other_space.directory} {format_bytes(more)} more,"
        raise ReplayBudgetError(
            f"disk in {directory}",
            f"{format_bytes(need.total_bytes)}{others}",
            format_bytes(free_disk + taken),
            f"{smaller(room)}, {_make_room(directory, taken, need.total_bytes + more)}or name a "
            "larger disk as replay.directory",
        )
    if need.total_bytes > free_memory and (must_fit_memory or in_memory):
        raise ReplayBudgetError(
            "memory",
            format_bytes(need.total_bytes),
            format_bytes(free_memory),
            f"{smaller(room)}, or name a directory on a disk as replay.directory",
        )
    free = f"{format_bytes(free_memory)} of memory, {format_bytes(free_disk)} in {directory}"
    return f"{need}; free: {free}"


def _make_room(directory: Path, taken: int, need: int) -> str:
    """Say how much of a disk others hold, where without them there would be room; else ""."""
    disk = shutil.disk_usage(_nearest_existing(directory))
    others = disk.used - taken
    if need > disk.total or others < need - (disk.free + taken):
        return ""
    return (
        f"make room there (other files hold {format_bytes(others)} of its "
        f"{format_bytes(disk.total)}), "
    )


def available_memory(root: Path = ROOT) -> int:
    """Bytes that this process may still take: the machine's, and every control group's limit."""
    return min([_machine_memory(root), *memory_left(root)])


def used_disk_bytes(paths: Iterable[Path]) -> int:
    """Bytes that these files take, as far as they are there."""
    return sum(path.stat().st_blocks * 512 for path in paths if path.is_file())


def free_disk_bytes(directory: Path) -> int:
    """Bytes that are free where `directory` is or would be."""
    return shutil.disk_usage(_nearest_existing(directory)).free


def same_disk(one: Path, other: Path) -> bool:
    """True if two paths, which need not exist yet, share their free space."""
    return _nearest_existing(one).stat().st_dev == _nearest_existing(other).stat().st_dev


def file_system(path: Path, root: Path = ROOT) -> str:
    """The type of file system that `path` is or would be on (``ext4``, ``tmpfs``); may be empty."""
    return mount_of(path, root)[0]


def mount_of(path: Path, root: Path = ROOT) -> tuple[str, tuple[str, ...]]:
    """The type of file system that `path` is or would be on, and how it is mounted."""
    path = _nearest_existing(path).resolve()
    best = -1
    kind = ""
    options: tuple[str, ...] = ()
    for line in read_lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        point = _mount_point(before.split(" ")[4])
        if path.is_relative_to(point) and len(point.parts) >= best:
            best = len(point.parts)
            kind, _, of_disk = after.split(" ", 2)
            options = (*before.split(" ")[5].split(","), *of_disk.split(","))
    return kind, options


_ESCAPED = re.compile(rb"\\([0-7]{3})")


def _mount_point(field: str) -> Path:
    """A place as the kernel writes it: bytes, of which blanks and the like are octal numbers."""
    escaped = os.fsencode(field)
    return Path(os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), escaped)))


def _nearest_existing(path: Path) -> Path:
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())


def _machine_memory(root: Path) -> int:
    for line in read_lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return installed_memory()  # at most; there is no number of what is free
