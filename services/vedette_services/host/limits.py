"""Names the limit of processes, descriptors or memory that a refused start of a process has met."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from vedette_rl.storage.control_groups import control_groups
from vedette_services.errors import StartRefusedError
from vedette_services.host.system import limit_of

_FIXES = {
    errno.EAGAIN: "raise it (ulimit -u, a container's pids limit, systemd's TasksMax), or run less "
    "here",
    errno.EMFILE: "raise it (ulimit -n, systemd's LimitNOFILE)",
    errno.ENFILE: "raise fs.file-max of this host, or run less here",
    errno.ENOMEM: "give it more memory, or run less here",
}


def start_refused(name: str, error: OSError) -> StartRefusedError | None:
    """The error of a process that could not be started for want of room; None for another cause.

    Args:
        name: the process, as messages call it.
    """
    if error.errno not in _FIXES:
        return None
    return StartRefusedError(name, describe_limit(error.errno), _FIXES[error.errno])


def describe_limit(number: int) -> str:
    """The limit that an `errno` stands for, with its value as far as it can be found out."""
    match number:
        case errno.EAGAIN:
            return f"the limit of processes is reached ({', '.join(_process_limits())})"
        case errno.EMFILE:
            return f"the limit of open files is reached (ulimit -n {limit_of('files')})"
        case errno.ENFILE:
            return "the host's limit of open files is reached"
        case _:
            return "there is no memory for it"


def _process_limits() -> Iterator[str]:
    """Every limit of processes that holds here, with its value."""
    yield f"ulimit -u {limit_of('processes')}"
    for group in control_groups("pids"):
        try:
            limit = (group / "pids.max").read_text().strip()
            used = (group / "pids.current").read_text().strip()
        except OSError:
            continue
        if limit != "max":
            yield f"pids.max {limit} of {group}, {used} used"
