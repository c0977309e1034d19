"""Child processes that never outlive who started them, and the order to end.

A daemon's children share its fate even at `kill -9`: on Linux the kernel signals them when their
parent dies; elsewhere a thread notices that the parent is another.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from vedette_rl.module_search import add_search_folder, search_folders
from vedette_rl.storage.regular_files import find_torn_line
from vedette_rl.storage.system import lock_file, wait_readable
from vedette_services.host import started_programs
from vedette_services.host.limits import start_refused
from vedette_services.host.system import kill_after_parent, kill_with_parent, nonblocking_pipe

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of processes that share the processors: no library starts a pool in each."""

PARENT_VARIABLE = "VEDETTE_PARENT_PID"
"""Set for a child that is to share our fate."""
_APPENDED_VARIABLE = "VEDETTE_APPENDED_PATH"
_SEARCHED_VARIABLE = "VEDETTE_SEARCHED_PATH"
_PARENT_POLL_S = 0.5
_KILL_S = 5.0  # a killed child that is stuck in the kernel longer is left


def python_module(module: str, *arguments: str) -> list[str]:
    """The command line that runs one of our modules with this interpreter.

    It finds what this process finds (`import_path`), and not what lies in the current folder.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def spawn(
    argv: Sequence[str],
    *,
    name: str = "a process",
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    pass_fds: Sequence[int] = (),
    own_group: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a child that dies with this process (it must call `die_with_parent` first thing).

    Args:
        name: the process, as messages call it.
        environment: variables set on top of ours.
        log: file that takes its stdout and stderr; ours where None.
        own_group: a terminal's Ctrl-C, which goes to a whole process group, does not reach it; not
            even while Python itself starts, when it would end with a traceback.

    Raises:
        StartRefusedError: a limit of processes, descriptors or memory is reached.
    """
    output: IO[bytes] | None = log.open("ab", buffering=0) if log is not None else None
    if log is not None and output is not None and find_torn_line(log) is not None:
        output.write(b"\n")  # who wrote it before was killed in the middle of a line
    mark = started_programs.new_mark()
    try:
        process = subprocess.Popen(
            list(argv),
            env={
                **os.environ,
                **import_path(),
                **(environment or {}),
                PARENT_VARIABLE: str(os.getpid()),
                started_programs.VARIABLE: mark,
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            pass_fds=tuple(pass_fds),
            process_group=0 if own_group else None,
        )
    except OSError as error:
        if refused := start_refused(name, error):
            raise refused from error
        raise
    finally:
        if output is not None:
            output.close()
    started_programs.remember_mark(process, mark)
    return process


def import_path() -> dict[str, str]:
    """Variables by which a child finds the modules that this process finds.

    ``PYTHONPATH`` has what stands before the standard library: a script's folder, and what was
    inserted there. What was added behind it (``sys.path.append``) must not shadow the library:
    `die_with_parent` appends it, and adds the folders of `vedette_rl.module_search`. Python finds
    its library and the installed packages by itself.
    """
    paths = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib", "scripts"))
    library, platform_library, *installed = paths
    search_path = [os.path.abspath(f) for f in sys.path]  # noqa: PTH100 - sys.path holds texts
    places = [search_path.index(f) for f in (library, platform_library) if f in search_path]
    behind = min(places, default=len(search_path))
    parts = {
        "PYTHONPATH": search_path[:behind],
        _APPENDED_VARIABLE: search_path[behind:],
        _SEARCHED_VARIABLE: [*search_folders()],
    }
    python = {library, platform_library, *installed}
    variables = {
        name: os.pathsep.join(f for f in folders if f not in python and Path(f).is_dir())
        for name, folders in parts.items()
    }
    return {name: folders for name, folders in variables.items() if folders}


ORPHAN_KILL_S = 16
"""The kernel's limit for an orphan that cleans up: the number of a signal (SIGSTKFLT) that nobody
sends, see `kill_after_parent`."""


def die_with_parent(clean_up: Callable[[], object] | None = None) -> None:
    """Tie this process to the one that spawned it, and find the modules that that one finds; does
    nothing in a process started by hand.

    Args:
        clean_up: called in a thread when the parent is gone, before this process ends; it takes
            less than `ORPHAN_KILL_S`. None: this process is killed with its parent.
    """
    folders = os.environ.pop(_APPENDED_VARIABLE, "").split(os.pathsep)
    sys.path.extend(folder for folder in folders if folder and folder not in sys.path)
    for folder in filter(None, os.environ.pop(_SEARCHED_VARIABLE, "").split(os.pathsep)):
        add_search_folder(folder)
    parent = int(os.environ.pop(PARENT_VARIABLE, "0"))
    if not parent:
        return
    StopSignals.has_parent = True
    # Or with its thread that forked us: spawn from a main thread.
    if clean_up is None:
        kill_with_parent()
    else:
        kill_after_parent(ORPHAN_KILL_S)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    threading.Thread(
        target=_watch_parent, args=(parent, clean_up), name="parent", daemon=True
    ).start()


def _watch_parent(parent: int, clean_up: Callable[[], object] | None) -> None:
    """The portable half of `die_with_parent`, and the half for parents that are threads."""
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_S)
    if clean_up is not None:
        clean_up()
    os._exit(1)


def end_children(
    children: Sequence[subprocess.Popen[Any]], *, term_s: float
) -> list[subprocess.Popen[Any]]:
    """Ask children to end, wait at most `term_s` for all of them, then kill.

    Returns:
        Those that had to be killed.
    """
    for child in children:
        if child.poll() is None:
            child.terminate()
    killed = []
    for child in wait_all(children, term_s):
        child.kill()
        killed.append(child)
    wait_all(killed, _KILL_S)
    return killed


def wait_all(
    children: Sequence[subprocess.Popen[Any]], timeout_s: float
) -> list[subprocess.Popen[Any]]:
    """Wait for children to end; returns those that have not within `timeout_s` in all."""
    deadline = time.monotonic() + timeout_s
    left = []
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            left.append(child)
    return left


SECOND_REQUEST_S = 1.0
"""A request to stop that comes sooner after the first is the same one, which came twice: from a
terminal and from `timeout`, or from a service manager that signals every process of a group."""


_WARNINGS = tuple(  # Windows has none
    getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)


def stop_signals() -> list[signal.Signals]:
    """SIGTERM, Ctrl-C, SIGHUP, which the end of a terminal or of an ssh session sends, and SIGUSR1
    and SIGUSR2, by which batch systems warn a job of its end (Slurm's ``--signal=USR1@60``;
    submitit's is USR2).

    Without the last three where they are ignored, as ``nohup`` has SIGHUP.
    """
    unless_ignored = (signal.SIGHUP, *_WARNINGS)
    heeded = [n for n in unless_ignored if signal.getsignal(n) != signal.SIG_IGN]
    return [signal.SIGTERM, signal.SIGINT, *heeded]


def was_stopped(status: int | None) -> bool:
    """Return True for a process that a stop signal has ended, before it could handle it.

    Args:
        status: from `Popen.returncode`.
    """
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *_WARNINGS)
    return status is not None and -status in numbers


def _leave_terminal() -> None:
    """Discard what is written to a terminal that has ended: such a write would raise an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # it is closed
            # A terminal that has ended does not answer, so it is none to `isatty`.
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                os.dup2(null, descriptor)
    os.close(null)


class StopSignals:
    """Stop signals as state: the first asks to stop, a later second one leaves at once.

    SIGUSR1 and SIGUSR2 ask, too, and are no first or second one: the batch system that warns by
    them sends SIGTERM when the time is over, and the checkpoint may still be written then.

    In a child of a daemon of ours no second one counts: its parent decides, and kills it.

    A signal also writes a byte to `fileno()`, so that a poller wakes up.
    """

    has_parent = False
    """True in a process that `spawn` started, once it has called `die_with_parent`."""

    def __init__(
        self,
        signals: Sequence[signal.Signals] | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        self._asked = False
        self._asked_at: float | None = None  # by other than a warning
        self._leave = leave or (lambda: os._exit(1))
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        for number in stop_signals() if signals is None else signals:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
        if number in _WARNINGS:
            self._ask()
        else:
            self.request()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            os.write(self._write, b"s")

    def request(self) -> None:
        """Ask to stop, as a signal does."""
        now = time.monotonic()
        self._ask()
        if self._asked_at is None:
            self._asked_at = now
        elif now - self._asked_at >= SECOND_REQUEST_S and not self.has_parent:
            self._leave()

    def __bool__(self) -> bool:
        return self._asked

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        """Close `fileno()`; no more stop is expected."""
        os.close(self._read)
        os.close(self._write)


class _Ignoring:
    """A handler that ignores a signal; a system call that an environment waits in continues.

    Args:
        then: called for each signal.
    """

    restarts_calls = True
    """As `vedette_rl.envs.process_guard` asks for it."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self._then = then

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._then()


def ignore_stop_signals() -> None:
    """Leave stop signals to the parent, which says by other ways when to end."""
    # Handlers, which are not inherited: programs that an environment starts can be terminated.
    for number in stop_signals():
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_IGN)
            continue
        handler = _Ignoring(_leave_terminal) if number == signal.SIGHUP else _Ignoring()
        signal.signal(number, handler)
        signal.siginterrupt(number, False)


def pause(signals: StopSignals, seconds: float) -> None:
    """Wait `seconds`, or less if a signal comes."""
    wait_readable(signals.fileno(), seconds)


class WakeupEvent:
    """An event between processes of one host. Children inherit its descriptors.

    ::

        wakeup = WakeupEvent()                                # in the parent
        spawn([..., wakeup.argument], pass_fds=wakeup.descriptors)
        wakeup = WakeupEvent(sys.argv[1])                     # in a child
        wakeup.set()                                          # in another
        poll(wakeup.fileno()); wakeup.clear()

    A child that dies takes nothing with it: the parent holds the descriptors.

    Args:
        argument: the parent's; None: make one.
    """

    def __init__(self, argument: str | None = None) -> None:
        if argument is None:
            self._read, self._write = nonblocking_pipe()
        else:
            self._read, self._write = map(int, argument.split(","))

    def fileno(self) -> int:
        """Readable from `set` until `clear`."""
        return self._read

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a child gets."""
        return self._read, self._write

    @property
    def argument(self) -> str:
        """The descriptors in the command line of a child."""
        return f"{self._read},{self._write}"

    @property
    def is_set(self) -> bool:
        """True from `set` until `clear`."""
        return wait_readable(self._read, 0.0)

    def set(self) -> None:
        """Wake the process that polls; never waits itself."""
        with contextlib.suppress(BlockingIOError):  # it is full: it is set
            os.write(self._write, b"\1")

    def clear(self) -> None:
        """Not set any more."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._read, _READ_BYTES)) == _READ_BYTES:
                pass

    def close(self) -> None:
        """Close the descriptors; nothing is told through it any more."""
        descriptors = self.descriptors
        # Forgotten before they are closed: another file may get the same numbers at once.
        self._read = -1
        self._write = -1
        for descriptor in descriptors:
            os.close(descriptor)


_READ_BYTES = 4096


_OWN_PREFIX = "vedette-actors-"
_SETTLED_S = 60.0  # a directory younger than this may not be locked yet


class PrivateDirectory:
    """A temporary directory (0700), removed at the end.

    One that a killed daemon left behind is removed by the next: the lock on it says whether its
    owner lives.
    """

    def __init__(self) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        self._make(Path(tempfile.gettempdir()))

    def _make(self, parent: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_OWN_PREFIX, dir=parent))
        self._lock = os.open(self.path, os.O_RDONLY)
        lock_file(self._lock)

    def ensure(self) -> Path:
        """Return its path; of another one where it is gone, as programs that tidy up remove it."""
        try:
            is_ours = os.path.samestat(self.path.stat(), os.fstat(self._lock))
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            os.close(self._lock)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._make(self.path.parent)
        return self.path

    def remove(self) -> None:
        """Remove it and all it holds; may be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove our directories whose owner is dead."""
    for path in parent.glob(f"{_OWN_PREFIX}*"):
        try:
            status = path.stat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < _SETTLED_S:
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # gone already, or not ours to look into
        try:
            if lock_file(lock):  # else nobody can tell whether its owner lives
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue  # its owner lives
        finally:
            os.close(lock)


class Interrupts:
    """Stop signals raise KeyboardInterrupt, but not while something is held."""

    def __init__(self) -> None:
        self._held = self._asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in stop_signals():
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: object) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
        self._asked = True
        if not self._held:
            raise KeyboardInterrupt

    def hold(self) -> None:
        """Raise nothing from now on."""
        self._held = True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raise what came meanwhile when it is over."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._asked:
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
