"""Check of the memory and disk that a replay needs, before anything starts."""

from __future__ import annotations

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
    return min([_machine_memory(root), *_cgroup_memory(root)])


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
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        point = Path(before.split(" ")[4].encode().decode("unicode_escape"))
        if path.is_relative_to(point) and len(point.parts) >= best:
            best = len(point.parts)
            kind, _, of_disk = after.split(" ", 2)
            options = (*before.split(" ")[5].split(","), *of_disk.split(","))
    return kind, options


def _nearest_existing(path: Path) -> Path:
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())


def _machine_memory(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return installed_memory()  # at most; there is no number of what is free


def _cgroup_memory(root: Path) -> list[int]:
    """Bytes left under the limit of every control group of this process, v1 and v2."""
    left = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = root / "sys/fs/cgroup"
            names = ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        # A container often sees its own group as the root, whatever the path is.
        group = base / path.lstrip("/")
        while True:
            free = _group_memory(group, *names)
            if free is not None:
                left.append(free)
            if group == base:
                break
            group = group.parent
    return left


def _group_memory(group: Path, limit_name: str, usage_name: str) -> int | None:
    limit, usage = _number(group / limit_name), _number(group / usage_name)
    if limit is None or usage is None:
        return None
    counts = dict(line.split(" ", 1) for line in _lines(group / "memory.stat"))
    # Cached files count as used, and make room when it is needed.
    files = sum(int(counts.get(name, 0)) for name in ("inactive_file", "active_file"))
    return max(0, limit - max(0, usage - files))


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
