"""Calls on files and memory that differ between operating systems, each with a portable path.

No other module of `vedette_rl` makes them; ruff checks that. Those on processes are in
`vedette_services.host.system`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import select
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

UNKNOWN_BYTES = 1 << 62
"""Memory of a system that gives no number."""


_ZEROS = bytes(1 << 20)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SYSCTL_MAX_BYTES = 1024


_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def open_file(path: Path, *, writable: bool = False) -> int:
    """Open a file that is there, for reading and perhaps writing; children do not inherit it."""
    return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | getattr(os, "O_BINARY", 0))


def lock_file(file: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Take the lock of an open file. Closing the file releases it.

    Args:
        wait: until it is free; only for locks that are held for a moment.

    Returns:
        False where there are no locks: on a file system of a network that keeps none, and on
        Windows, where no process of ours writes what a lock protects.

    Raises:
        BlockingIOError: another process has it.
    """
    if fcntl is not None:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return False
    return fcntl is not None


def reserve_space(file: int, size: int) -> None:
    """Give a new file `size` bytes of zeros that are really on the disk.

    Raises:
        OSError: there is no room.
        OverflowError: no file can be so large.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    for at in range(0, size, len(_ZEROS)):  # macOS: a hole would be filled, or fail, at a store
        os.pwrite(file, _ZEROS[: size - at], at)


def lacks_inodes(place: Path) -> bool:
    """Return True if a disk has bytes for another file and no inode.

    Args:
        place: a file or folder on it, which need not exist.
    """
    statvfs = getattr(os, "statvfs", None)
    if statvfs is None:  # Windows
        return False
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        disk = statvfs(place)
    except OSError:
        return False
    # Some file systems make inodes as they need them, and have none of a number.
    return bool(disk.f_files > 0 and disk.f_favail == 0 and disk.f_bavail > 0)


def file_size_limit() -> int | None:
    """Return the bytes that a file of this process may have; None: there is no limit."""
    if resource is not None:
        soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        if soft != resource.RLIM_INFINITY:
            return soft
    return None


def sync_file(file: int) -> None:
    """Wait until the disk has a file: its content, and its size."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:  # macOS, where fsync leaves it in the drive's cache
        with contextlib.suppress(OSError):  # some file systems, e.g. a network's, have no such
            fcntl.fcntl(file, full)
            return
    os.fsync(file)


def sync_mapped_file(file: int) -> None:
    """Wait until the disk has what was written to a file, through any map of it too."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(file)  # unlike a map's flush, it lets other threads run
        return
    with mmap.mmap(file, 0) as whole:  # macOS: only this takes the pages of maps for certain
        whole.flush()
    sync_file(file)


def forget_pages(file: int) -> None:
    """Let memory forget what it holds of a file and the disk has, so that the disk is read.

    Pages that another process has mapped stay, and all do on systems without such a call.
    """
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):  # what cannot be written stays in memory
            os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def boot_id() -> bytes:
    """Return the identifier of this start of the machine: 16 bytes, all zero where it has none."""
    try:
        text = _BOOT_ID.read_text(encoding="ascii")
    except OSError:
        text = sysctl_text("kern.bootsessionuuid")
    try:
        return bytes.fromhex(text.strip().replace("-", "")).ljust(16, b"\0")[:16]
    except ValueError:
        return bytes(16)


def installed_memory() -> int:
    """Return the bytes of this machine's memory; `UNKNOWN_BYTES` where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # AttributeError: Windows
        return UNKNOWN_BYTES


def sysctl_text(name: str) -> str:
    """Return a text of macOS's `sysctl`; "" on other systems, and where there is no such name."""
    try:
        call = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError, TypeError):  # TypeError: Windows
        return ""
    buffer = ctypes.create_string_buffer(_SYSCTL_MAX_BYTES)
    size = ctypes.c_size_t(_SYSCTL_MAX_BYTES)
    if call(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return ""
    return buffer.value.decode("utf-8", "replace")


def wait_readable(descriptor: int, timeout_s: float) -> bool:
    """Wait until a pipe or socket can be read; False: it cannot when the time is over.

    `select.select` would refuse descriptors from 1024 on, which a process with many open files has.
    """
    timeout_s = max(0.0, timeout_s)
    if not hasattr(select, "poll"):  # on Windows, whose `select.select` takes any socket
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1e3))
