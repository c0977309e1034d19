"""Stops the learner of a run directory."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from vedette_services.errors import RunInUseError, ServicesError, UsageError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.finding import not_a_run
from vedette_services.run.outcome import describe_wait


def stop_run(directory: Path, timeout_s: float) -> bool:
    """Ask the learner of a run, a process of this host, to stop, and wait for its end.

    Returns:
        False if no learner runs there.

    Raises:
        NotARunError: the directory holds no run.
        UsageError: the learner is on another host, or of another user.
        ServicesError: it has not ended within `timeout_s`.
    """
    run = RunDirectory(directory)
    if not run.exists:
        raise not_a_run(directory, "run.json")
    holder = run.holder()
    if holder is None:
        seen = run.find_seen_owner(time.time(), locks=run.check_free(wait_s=0.0))
        if seen is not None and seen.lives:
            if seen.owner.is_process_here and not run.can_open_lock:
                raise UsageError(f"{directory}: process {seen.owner.pid} is another user's")
            raise UsageError(f"{directory}: its learner is {seen.owner}, {seen}; stop it there")
        return False
    pid, host = holder
    if not run.is_of_this_host(pid, host):
        raise UsageError(f"{directory}: its learner is process {pid} on {host}; stop it there")
    try:
        if not run.is_locked_by(pid):
            raise UsageError(f"{directory}: process {pid} does not hold its lock; try again")
        os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise UsageError(f"{directory}: process {pid} is another user's") from error
    except ProcessLookupError:
        pass  # it has just ended
    try:
        run.check_free(timeout_s)
    except RunInUseError as error:
        late = f"process {pid} was asked to stop and has not ended after {timeout_s:g} s"
        waits = describe_wait(directory)
        raise ServicesError(f"{directory}: {late}{f': {waits}' if waits else ''}") from error
    return True
