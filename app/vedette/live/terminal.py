"""The terminal of a view: single keys, Ctrl-Z and `fg`, and its state given back at every end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import IO, Any, Self

try:
    import termios
except ImportError:  # Windows: there are no keys
    termios = None  # type: ignore[assignment]  # the module

_LOOK_EVERY_S = 0.1
_LET_GO_S = 1.0
_SHOW_CURSOR = b"\x1b[?25h"
_LEAVE_WHOLE = b"\x1b[?1049l"
_SUSPEND = "SIGTSTP"
_ENDS = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


class TerminalSession:
    """Owns a terminal while a view is drawn on it.

    In the foreground it draws and reads keys. In the background (Ctrl-Z and `bg`, or `&`) it does
    neither: the terminal is the shell's. A thread looks which of the two is the case. Signals that
    end the process give the terminal back first, unless others handle them.

    Args:
        out: the terminal.
        draw: starts (True) or ends (False) the drawing.
        on_key: takes each key that is pressed, in a thread.
        whole: the drawing uses the terminal's second screen.
    """

    def __init__(
        self,
        out: IO[str],
        draw: Callable[[bool], None],
        on_key: Callable[[str], None],
        *,
        whole: bool = False,
    ) -> None:
        self._draw = draw
        self._on_key = on_key
        self._end = (_LEAVE_WHOLE if whole else b"") + _SHOW_CURSOR
        self._out = _terminal(out)
        self._keys = None if termios is None else _terminal(sys.stdin)
        self._modes: list[Any] | None = None  # of the terminal before it was ours
        self._handlers: dict[int, Any] = {}
        self._shown = self._suspended = False
        self._over = threading.Event()
        self._let_go = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="terminal", daemon=True)

    @property
    def has_keys(self) -> bool:
        """True if keys are read."""
        return self._keys is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._install_handlers()
        try:
            self._set_shown(self._is_foreground())
        except BaseException:
            self._remove_handlers()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        try:
            self._thread.join(_LET_GO_S)
        finally:
            try:
                self._set_shown(False)
            finally:
                self._remove_handlers()

    def release(self) -> None:
        """Give the terminal back at once, because this process ends without `__exit__`."""
        self._suspended = True
        self._let_go.clear()
        self._let_go.wait(_LET_GO_S)  # its thread may be held up by a terminal that does not take
        self._restore_modes()
        self._write_end()

    def _watch(self) -> None:
        """Follow the foreground and read keys until the end."""
        while not self._over.is_set():
            self._set_shown(self._is_foreground() and not self._suspended)
            if self._suspended:
                self._let_go.set()
            if self._shown and self._keys is not None:
                self._take_keys()
                self._read_keys(self._keys)
            else:
                self._over.wait(_LOOK_EVERY_S)

    def _read_keys(self, keys: int) -> None:
        """Hand over the keys that are pressed soon."""
        ready, _, _ = select.select([keys], [], [], _LOOK_EVERY_S)
        if not ready or not self._is_foreground():  # reading in the background would stop us
            return
        try:
            pressed = os.read(keys, 64)
        except OSError:
            pressed = b""
        if not pressed:  # the terminal is gone
            self._keys = None
        for key in pressed.decode("utf-8", "ignore"):
            self._on_key(key)

    def _set_shown(self, shown: bool) -> None:
        if shown == self._shown:
            return
        self._shown = shown
        try:
            self._draw(shown)
        except BaseException:  # half drawn, for example in an encoding without its characters
            self._write_end()
            raise
        finally:
            if not shown:
                self._restore_modes()

    def _write_end(self) -> None:
        """Leave the second screen and show the cursor."""
        if self._out is not None and self._is_foreground():
            with contextlib.suppress(OSError):
                os.write(self._out, self._end)

    def _take_keys(self) -> None:
        """Have keys come one by one and unseen; Ctrl-C, Ctrl-Z and Ctrl-\\ stay signals."""
        assert self._keys is not None, "there are keys only if there is a terminal"
        with contextlib.suppress(termios.error):
            modes = termios.tcgetattr(self._keys)
            if modes[3] & termios.ICANON:  # they are the shell's
                self._modes = [*modes[:6], [*modes[6]]]
                modes[3] &= ~(termios.ICANON | termios.ECHO)
                modes[6][termios.VMIN] = 1
                modes[6][termios.VTIME] = 0
                termios.tcsetattr(self._keys, termios.TCSANOW, modes)

    def _restore_modes(self) -> None:
        """Give the modes back; in the background they are the shell's already."""
        modes = self._modes
        self._modes = None
        if modes is None or self._keys is None or not self._is_foreground():
            return
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._keys, termios.TCSANOW, modes)

    def _is_foreground(self) -> bool:
        terminal = self._keys if self._keys is not None else self._out
        if terminal is None or not hasattr(os, "tcgetpgrp"):
            return True
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        except OSError:  # it is not our session's terminal
            return True

    def _install_handlers(self) -> None:
        """Handle the signals that would leave the terminal as it is."""
        for name in (*_ENDS, _SUSPEND):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                self._handlers[number] = signal.SIG_DFL
                signal.signal(number, self._on_signal)

    def _remove_handlers(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Give the terminal back, then stop or end as without us; after `fg`, go on."""
        self.release()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # a stopped process continues behind this line
        signal.signal(number, self._on_signal)
        self._suspended = False


def _terminal(stream: IO[str] | None) -> int | None:
    """The descriptor of a stream that is a terminal; else None."""
    try:
        number = -1 if stream is None else stream.fileno()
        return number if number >= 0 and os.isatty(number) else None
    except (OSError, ValueError):
        return None
