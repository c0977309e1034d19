"""The end of a process in which code of others has run: it takes a few seconds at most.

Python's own end waits for every thread that is no daemon, and runs whatever was registered for it.
A simulator's driver thread, or an exit handler that waits for a server, would hold a command that
has done its work. Children that an environment has left would hold the reader of its output.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from vedette_services.errors import DONE, FAILED
from vedette_services.host.output import Say
from vedette_services.host.system import reset_inherited_signals

THREADS_S = 2.0
"""For threads to end by themselves."""

CHILDREN_S = 2.0
"""For processes that were left to end, after each signal."""

HANDLERS_S = 5.0
"""For all exit handlers together: recorders send what is left."""

_POLL_S = 0.02


def run_to_end(main: Callable[[], object], say: Say) -> NoReturn:
    """Run the main function of this process, and end it with its exit status."""
    status = DONE
    try:
        reset_inherited_signals()
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else DONE if end.code is None else FAILED
        if isinstance(end.code, str):
            say(end.code)
    except BaseException:  # noqa: BLE001 - told as Python would
        sys.excepthook(*sys.exc_info())
        status = FAILED
    end_process(status, say)


def end_process(status: int, say: Say) -> NoReturn:
    """End this process now, from its main thread.

    Args:
        status: its exit status.
        say: told what was left and goes with it.
    """
    flush_output()
    _await_threads(say)
    _run_exit_handlers(say, status)
    _end_children(say)
    flush_output()
    os._exit(status)


def flush_output() -> None:
    """Write what the standard streams still hold."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it; it is closed
            stream.flush()


def _await_threads(say: Say) -> None:
    """Wait a moment for threads that Python would wait for; name one that stays."""
    deadline = time.monotonic() + THREADS_S
    left = _lasting_threads()
    while left and time.monotonic() < deadline:
        left[0].join(_POLL_S)
        left = _lasting_threads()
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        say(f"thread {left[0].name!r}{more}, of the environment or a library, was left: ended")


def _lasting_threads() -> list[threading.Thread]:
    own = threading.current_thread()
    return [t for t in threading.enumerate() if t is not own and not t.daemon and t.is_alive()]


def _run_exit_handlers(say: Say, status: int) -> None:
    """Run what is registered with `atexit`, in this thread, as some want; leave what takes long."""
    with end_if_longer(HANDLERS_S, "exit handlers", status, say), contextlib.suppress(Exception):
        atexit._run_exitfuncs()  # each prints its own error


@contextlib.contextmanager
def end_if_longer(seconds: float, what: str, status: int, say: Say) -> Iterator[None]:
    """End this process, and what it has started, where what runs meanwhile takes longer."""
    done = threading.Event()

    def watch() -> None:
        if not done.wait(seconds):
            say(f"{what} took more than {seconds:g} s: left")
            end_now(status, say)

    threading.Thread(target=watch, name="end", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def end_now(status: int, say: Say) -> NoReturn:
    """End this process, and what it has started, from any thread; nothing else is waited for."""
    _end_children(say)
    flush_output()
    os._exit(status)


def _end_children(say: Say) -> None:
    """End processes that were started here and left: they hold the output of this one."""
    left = dict(_children(os.getpid()))
    if not left:
        return
    first = next(iter(left))
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    say(f"process {first} ({left[first]}){more}, of the environment or a library, was left: ended")
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in left:
            with contextlib.suppress(OSError):  # it has ended
                os.kill(child, number)
        deadline = time.monotonic() + CHILDREN_S
        while left and time.monotonic() < deadline:
            left = dict(_children(os.getpid()))
            time.sleep(_POLL_S if left else 0.0)


def _children(parent: int) -> Iterator[tuple[int, str]]:
    """Yield the living children of a process, each with its name, where the system shows them."""
    for place in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):
            for child in map(int, place.read_text().split()):
                line = Path(f"/proc/{child}/stat").read_text(errors="replace")  # may cut a letter
                name, _, rest = line.rpartition(") ")
                if rest[:1] != "Z":
                    yield child, name.partition(" (")[2]
