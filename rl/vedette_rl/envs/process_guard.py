"""Keeps what environments do to their process from everything else in it.

An environment may change the working directory, replace the standard streams, configure logging,
take over signals, set a umask, or set defaults of torch and numpy. In a process that also learns,
writes files or waits for Ctrl-C, all that would reach what is not its own.

::

    guard = ProcessGuard()
    env = guard.make(Simulator)                  # begins in our directory
    obs, _ = guard.call(env.reset)               # finds what it has set before
    # here nothing of that is set
"""

from __future__ import annotations

import contextvars
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LOOK_EVERY_S = 1.0
"""Loggers, handlers of signals and `_Settings` are looked at after an environment was made, and so
often afterwards: that costs as much as a small environment's step."""

OUR_LOGGERS = "vedette"

_SIGNALS = tuple(
    number
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if (number := getattr(signal, name, None)) is not None
)
_root_manager = logging.root.manager


class ProcessState(NamedTuple):
    """What is set in this process, and thread.

    Args:
        directory: the working directory; "" where that is gone.
        log_below: the level of all logging that is off (`logging.disable`).
        dtype, grad: torch's default type and whether it records gradients; None without torch.
    """

    directory: str
    stdout: Any
    stderr: Any
    log_below: int
    dtype: Any
    grad: bool | None


class ProcessGuard:
    """Calls code of environments, which share a process of their own as far as they can see.

    Directory, streams, logging, umask, limits of Python, and the defaults of torch and numpy are
    theirs while they run and ours otherwise. Handlers of stop signals, and our loggers, are always
    ours. Calls are not nested. One guard is used by one thread.

    Most of that is one for all threads: while a call runs, other threads are in the environment's
    folder, too. They use absolute paths.
    """

    def __init__(self) -> None:
        self._run = contextvars.copy_context().run  # numpy's error state is in the context
        self._theirs: ProcessState | None = None
        self._their_settings: _Settings | None = None
        self._directory = _current_directory()
        self._torch = _find_torch()
        self._look_at = 0.0
        self._owns_signals = threading.current_thread() is threading.main_thread()

    def make(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call what makes an environment, or imports it: in our directory, as it may go into one
        that it names from there."""
        if self._theirs is not None:
            self._theirs = self._theirs._replace(directory=_current_directory())
        self._look_at = 0.0
        return self.call(function, *args, **kwargs)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of an environment, or one that calls it."""
        if time.monotonic() >= self._look_at:
            return self._call_and_look(function, args, kwargs)
        if self._theirs is not None or self._their_settings is not None:
            return self._call_in_theirs(function, args, kwargs)
        # Once for each step of a vector: nothing is called that need not be.
        torch = self._torch
        stdout = sys.stdout
        stderr = sys.stderr
        log_below = _root_manager.disable
        dtype = grad = None
        if torch is not None:
            dtype = torch.get_default_dtype()
            grad = torch.is_grad_enabled()
        try:
            return self._run(function, *args, **kwargs)
        finally:
            if (
                sys.stdout is not stdout
                or sys.stderr is not stderr
                or _root_manager.disable != log_below
                or _current_directory() != self._directory
                or (
                    torch is not None
                    and (
                        torch.get_default_dtype() is not dtype
                        or torch.is_grad_enabled() is not grad
                    )
                )
                or (torch is None and "torch" in sys.modules)
            ):
                ours = ProcessState(self._directory, stdout, stderr, log_below, dtype, grad)
                self._leave(ours)

    def _call_and_look(
        self, function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> T:
        """Call a function, and look at what is not looked at in each step."""
        self._look_at = time.monotonic() + LOOK_EVERY_S
        self._directory = _current_directory()
        self._torch = _find_torch()
        loggers = _OurLoggers()
        handlers = [signal.getsignal(number) for number in _SIGNALS] if self._owns_signals else []
        try:
            return self._call_in_theirs(function, args, kwargs)
        finally:
            loggers.restore()
            for number, handler in zip(_SIGNALS, handlers, strict=False):
                _handle(number, handler)  # always: C code may have taken it
            self._torch = _find_torch()

    def _call_in_theirs(
        self, function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> T:
        """Call a function with what environments have set before."""
        ours = _read_state(self._directory)
        settings = _Settings.read()
        if self._theirs is not None:
            _set_state(ours, self._theirs)
        if self._their_settings is not None:
            self._their_settings.set()
        try:
            return self._run(function, *args, **kwargs)
        finally:
            self._leave(ours)
            self._restore_settings(settings)

    def _leave(self, ours: ProcessState) -> None:
        """Set what is ours again, and keep what is theirs."""
        theirs = _read_state(_current_directory())
        self._theirs = None if theirs == ours else theirs
        _set_state(theirs, ours)

    def _restore_settings(self, ours: _Settings) -> None:
        theirs = _Settings.read()
        self._their_settings = None if theirs == ours else theirs
        if theirs != ours:
            ours.set()


def _find_torch() -> Any:
    """Return torch, which is not imported for this; None where nobody has."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "is_grad_enabled") else None  # else it is being imported


def _current_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a path costs three times as much
    except OSError:  # it is removed
        return ""


def _read_state(directory: str) -> ProcessState:
    torch = _find_torch()
    dtype = grad = None
    if torch is not None:
        dtype = torch.get_default_dtype()
        grad = torch.is_grad_enabled()
    return ProcessState(directory, sys.stdout, sys.stderr, _root_manager.disable, dtype, grad)


def _set_state(now: ProcessState, wanted: ProcessState) -> None:
    """Set what differs."""
    if now.directory != wanted.directory and wanted.directory:
        os.chdir(wanted.directory)
    sys.stdout = wanted.stdout
    sys.stderr = wanted.stderr
    _root_manager.disable = wanted.log_below
    torch = _find_torch()
    if torch is None:
        return
    # An environment that has imported torch just now found it as it comes.
    torch.set_default_dtype(torch.float32 if wanted.dtype is None else wanted.dtype)
    torch.set_grad_enabled(True if wanted.grad is None else wanted.grad)


def _handle(number: int, handler: Any) -> None:
    """Install a handler; None is one that is not Python's, of which nothing is known.

    One that has the attribute ``restarts_calls`` leaves system calls alone: they go on after it.
    """
    if handler is None:
        return
    signal.signal(number, handler)
    if getattr(handler, "restarts_calls", False):
        signal.siginterrupt(number, False)


class _Settings(NamedTuple):
    """What is looked at after an environment was made, and now and then.

    Args:
        level, handlers: the root logger's.
        umask: of files that are made.
        recursion_limit: Python's.
        collects: garbage is collected.
        socket_timeout_s: of new sockets; None: they wait.
    """

    level: int
    handlers: tuple[logging.Handler, ...]
    umask: int
    recursion_limit: int
    collects: bool
    socket_timeout_s: float | None

    @classmethod
    def read(cls) -> _Settings:
        umask = os.umask(0o077)  # it cannot be read alone; what another thread makes now is ours
        os.umask(umask)
        return cls(
            logging.root.level,
            tuple(logging.root.handlers),
            umask,
            sys.getrecursionlimit(),
            gc.isenabled(),
            socket.getdefaulttimeout(),
        )

    def set(self) -> None:
        logging.root.setLevel(self.level)
        logging.root.handlers[:] = self.handlers
        os.umask(self.umask)
        with suppress(RecursionError):  # more calls are open here than it allows
            sys.setrecursionlimit(self.recursion_limit)
        if self.collects:
            gc.enable()
        else:
            gc.disable()
        socket.setdefaulttimeout(self.socket_timeout_s)


class _OurLoggers:
    """Our loggers as they are set now."""

    def __init__(self) -> None:
        self._found = [
            (logger, logger.disabled, logger.level, logger.propagate, tuple(logger.handlers))
            for name, logger in logging.root.manager.loggerDict.items()
            if isinstance(logger, logging.Logger) and name.partition(".")[0] == OUR_LOGGERS
        ]

    def restore(self) -> None:
        """Set them so again; ``dictConfig`` disables all that it does not name."""
        for logger, disabled, level, propagate, handlers in self._found:
            logger.disabled = disabled
            logger.propagate = propagate
            if logger.level != level:
                logger.setLevel(level)
            if tuple(logger.handlers) != handlers:
                logger.handlers[:] = handlers
