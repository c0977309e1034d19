"""Tells whether the process that wrote something still runs: by its number and when it began.

A number alone says nothing, since the next process may have it, in a container nearly always; nor
does a process that other hosts or containers number likewise, so each belongs to a machine.
"""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
import sys
from pathlib import Path

from vedette_rl.storage.system import boot_id

_PROCESSES = Path("/proc")


def process_began(pid: int) -> int:
    """Return when a process began, by the machine's count; 0 where the system does not tell."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else 0


def has_ended(pid: int, began: int) -> bool:
    """Return True if a process of this machine does not run any more.

    Args:
        began: as `process_began` returned it: another process may have its identifier now.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # it is another user's
    fields = _stat_fields(pid)
    if not fields or not began:
        return False
    is_waited_for = fields[0] in "ZX"
    return is_waited_for or int(fields[19]) != began


def pid_namespace() -> str:
    """Return the name of the process identifiers that this process sees; "" if not known."""
    try:
        return str((_PROCESSES / "self" / "ns" / "pid").readlink())
    except OSError:
        return ""


@functools.cache
def machine_number() -> int:
    """Return a number of this start of the machine and, in a container, of its processes.

    Where the system does not tell them it is drawn at random: then nobody else has it.
    """
    boot, namespace = boot_id(), pid_namespace()
    if not any(boot) or (sys.platform == "linux" and not namespace):
        return secrets.randbits(48)
    known = hashlib.blake2b(boot + namespace.encode(), digest_size=6).digest()
    return int.from_bytes(known, "big")


def _stat_fields(pid: int) -> list[str]:
    """Return what Linux says of a process, from its state on; nothing on other systems."""
    try:
        text = (_PROCESSES / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
