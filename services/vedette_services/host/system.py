"""Calls on processes, sockets and GPUs that differ between operating systems, each with a portable
path.

No other module of `vedette_services` makes them; ruff checks that. Those on files and memory are in
`vedette_rl.storage.system`. On Windows no daemon runs: see `require_daemons`.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import os
import platform
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Literal

from vedette_rl.storage.control_groups import cores_allowed
from vedette_rl.storage.system import sysctl_text
from vedette_services.errors import UsageError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

PROCESSES = Path("/proc")
"""Where Linux lists its processes."""

_PR_SET_PDEATHSIG = 1
_FILE_LIMITS = (65_536, 10_240)  # macOS takes no soft limit above its own, of 10,240 or more
_ESTABLISHED = 1  # the first byte of Linux's tcp_info
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def runs_daemons() -> bool:
    """Return True where learners and actors can run: not on Windows."""
    return resource is not None


def require_daemons(what: str) -> None:
    """Refuse what needs a learner or actors of this host, where none can run.

    Raises:
        UsageError: names it and the fix.
    """
    if not runs_daemons():
        raise UsageError(f"{what} needs Linux or macOS: on Windows use WSL or a container")


@functools.cache
def vedette_version() -> str:
    """Return the installed distribution's version; "" where it is not installed."""
    try:
        return metadata.version("vedette")
    except metadata.PackageNotFoundError:
        return ""


def reset_inherited_signals() -> None:
    """Undo what a parent has set that we cannot work with, and that a new process inherits.

    Where SIGCHLD is ignored, the system forgets how a child has ended: Python reads 0. A blocked
    signal stops nobody.
    """
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        warnings = {signal.SIGUSR1, signal.SIGUSR2}
        stops = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *warnings}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)


def count_cores() -> int:
    """Return the cores that this process may use, of which a container's limit may be a part."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    allowed = cores_allowed()
    return cores if allowed >= cores else max(1, math.ceil(allowed))


def count_waits() -> int:
    """Return how often this thread, or the process where threads are not counted, has given a
    processor up by itself, to wait for something.
    """
    who = getattr(resource, "RUSAGE_THREAD", getattr(resource, "RUSAGE_SELF", 0))
    return resource.getrusage(who).ru_nvcsw if resource is not None else 0


def cpu_model() -> str:
    """Return the processor's name."""
    text = read_text(PROCESSES / "cpuinfo")
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    name = model[1] if model else sysctl_text("machdep.cpu.brand_string")
    return name or platform.processor() or platform.machine()


def kill_with_parent() -> None:
    """Ask the kernel to kill this process when the *thread* that forked it ends, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def kill_after_parent(seconds: int) -> None:
    """Ask the kernel to end this process `seconds` after the *thread* that forked it, on Linux.

    No thread of ours can do that: an environment's C code may hold Python's lock for ever. The
    kernel sends a signal of our choice when the parent ends. Its handler is C's ``alarm``, which
    takes the signal's number for seconds.

    Args:
        seconds: also the number of a signal that nothing else in this process uses.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal(seconds, ctypes.cast(libc.alarm, ctypes.c_void_p))
        libc.prctl(_PR_SET_PDEATHSIG, seconds, 0, 0, 0)


def keep_freed_memory() -> None:
    """Have glibc keep the memory that is freed, of blocks up to 1 GiB; other systems stay as
    they are.

    A training step frees some megabytes and needs them again in the next one. Returned to the
    kernel, they come back as some hundred page faults.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    # Some versions take no threshold above 32 MiB.
    libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30) or libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)
    libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def limit_of(what: Literal["files", "processes"]) -> str:
    """Return this process's limit as a shell's ``ulimit`` shows it; "?" where there is none."""
    if not runs_daemons():
        return "?"
    kind = resource.RLIMIT_NOFILE if what == "files" else resource.RLIMIT_NPROC
    soft, _ = resource.getrlimit(kind)
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def raise_file_limit() -> None:
    """Raise the limit of open files: a flood of connections must leave some for our own files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in _FILE_LIMITS:
        wanted = limit if hard == resource.RLIM_INFINITY else min(hard, limit)
        if soft >= wanted:
            return
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return


def nonblocking_pipe() -> tuple[int, int]:
    """Make a pipe whose ends do not block."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def adopt_descriptors(parent: int, descriptors: Iterable[int]) -> None:
    """Open the pipes of another process under the numbers that they have there, which are not used
    here yet: for a child to which they were not handed on.

    Raises:
        UsageError: another system than Linux.
    """
    if sys.platform != "linux":
        raise UsageError("learner.ranks: several ranks need Linux")
    for descriptor in descriptors:
        opened = os.open(
            PROCESSES / str(parent) / "fd" / str(descriptor), os.O_RDWR | os.O_NONBLOCK
        )
        if opened != descriptor:
            os.dup2(opened, descriptor, inheritable=False)
            os.close(opened)


def anonymous_file(name: str) -> int:
    """Return a descriptor of a file without a name, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def is_established(connection: socket.socket) -> bool:
    """Return True if the peer has not closed a TCP connection; False where that cannot be told."""
    try:
        state: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except (OSError, AttributeError):  # AttributeError: a system without TCP_INFO
        return False
    return state[0] == _ESTABLISHED


def private_bytes(pid: int) -> int:
    """Return the memory of a process without the files that it maps; 0 if it is unknown."""
    for line in read_text(PROCESSES / str(pid) / "status").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


_STATES = {"T": "stopped", "t": "traced", "D": "uninterruptible"}


def process_state(pid: int) -> str:
    """Return ``stopped``, ``traced`` or ``uninterruptible`` if a process's main thread is that.

    Else, and where it cannot be told, it is "". A process that a tracer holds counts as traced,
    whichever state it shows.
    """
    lines = read_text(PROCESSES / str(pid) / "status").splitlines()
    fields = dict(line.partition(":")[::2] for line in lines)
    if int(fields.get("TracerPid", "0")):
        return "traced"
    return _STATES.get(fields.get("State", "").strip()[:1], "")


def has_open(pid: int, file: os.stat_result) -> bool:
    """Return True if a process has a file open, or where that cannot be told.

    Raises:
        PermissionError: the process is another user's.
        ProcessLookupError: there is no such process.
    """
    if not (PROCESSES / "self" / "fd").is_dir():
        return True
    os.kill(pid, 0)
    for link in (PROCESSES / str(pid) / "fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            if os.path.samestat(link.stat(), file):
                return True
    return False


def read_text(path: Path) -> str:
    """Return the text of a file; "" if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


# Only the trainer loads torch, which takes seconds. The driver's answer is enough to refuse a wrong
# name before anything starts; the rest is left to torch.

_AMD = Path("/dev/kfd")  # torch for AMD's cards also calls them cuda
_DRIVER = "libcuda.so.1"


def missing_device(
    name: str,
    *,
    platform: str = sys.platform,
    count_gpus: Callable[[], int | None] | None = None,
) -> str:
    """Return why there is no such device here; "" if there is, or if only torch knows.

    Args:
        name: the value of `learner.device`.
        platform: the value of `sys.platform`.
        count_gpus: returns the number of NVIDIA GPUs, as `nvidia_gpus` does.
    """
    kind, _, index = name.partition(":")
    if kind == "mps" and platform != "darwin":
        return "mps exists only on Apple's machines"
    if kind != "cuda":
        return ""
    if why := _unfit_torch():
        return why
    gpus = (count_gpus or nvidia_gpus)()
    if gpus is None or int(index or 0) < gpus:
        return ""
    return f"this host shows {gpus} GPUs, counted from cuda:0" if gpus else "this host shows no GPU"


def describe_device(name: str) -> str:
    """Return what ``auto`` comes to on a host that shows GPUs; "" elsewhere, and of other names."""
    gpus = nvidia_gpus() if name == "auto" else 0
    if not gpus:
        return ""
    shown = f"this host shows {gpus} {'GPU' if gpus == 1 else 'GPUs'}"
    if why := _unfit_torch():
        return f"trains on the CPU: {shown}, but {why}"
    return f"trains on a GPU: {shown}"


def _unfit_torch() -> str:
    """Return why the installed torch uses no GPU of this host, whichever there is; "" if nothing is
    known against it. torch itself says the last word, in the process that trains."""
    cuda = torch_cuda()
    if cuda is None:
        return ""
    if not cuda:
        return f"torch {torch_version()} is built without CUDA"
    driver = driver_cuda()
    # Within one major version an older driver does (CUDA's "minor version compatibility").
    if driver is None or driver[0] >= int(cuda.partition(".")[0]):
        return ""
    there = ".".join(map(str, driver))
    return (
        f"its driver is for CUDA {there}, and torch {torch_version()} needs CUDA {cuda}: install a "
        "newer driver, or a torch that is built for this one"
    )


_CUDA_OF_TORCH = re.compile(r"^cuda\b[^=]*= *(?:'([\d.]+)'|(None))", re.MULTILINE)
_ROCM_OF_TORCH = re.compile(r"^(?:hip|rocm)\b[^=]*= *'", re.MULTILINE)


def torch_cuda() -> str | None:
    """Return the version of CUDA that the installed torch is built for; "": for the CPU alone;
    None: for another maker's cards, or not known. torch is not loaded for it."""
    try:
        found = importlib.util.find_spec("torch")
        text = Path(found.origin).with_name("version.py").read_text() if found else ""  # type: ignore[arg-type]  # of a regular package
    except (OSError, TypeError, ValueError):
        return None
    cuda = _CUDA_OF_TORCH.search(text)
    if cuda is None or _ROCM_OF_TORCH.search(text):
        return None
    return cuda[1] or ""


def driver_cuda() -> tuple[int, int] | None:
    """Return the version of CUDA that the NVIDIA driver is for; None: there is none that says."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return None
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)):
        return None
    return version.value // 1000, version.value % 1000 // 10


def torch_version() -> str:
    """Return the version of the installed torch; "" if there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def nvidia_gpus() -> int | None:
    """Return the number of NVIDIA GPUs that the driver shows here; None: it cannot be asked."""
    if sys.platform != "linux" or _AMD.exists():
        return None
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0  # it is installed and shows no GPU
    return count.value
