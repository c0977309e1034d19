"""Checkpoints written beside the training, the newest state first."""

from __future__ import annotations

import logging
import threading
from typing import Any

from vedette_rl.checkpoint import Checkpoints
from vedette_rl.core import State
from vedette_rl.errors import CheckpointError

log = logging.getLogger("vedette.trainer")


class Saver:
    """One thread that writes checkpoints; while it writes, a newer state replaces a waiting one.

    A full disk or a read-only directory is said once and tried again with the next checkpoint.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._work = threading.Condition()
        self._waiting: tuple[int, State, dict[str, Any]] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="saver", daemon=True)
        self._thread.start()

    def save(self, opt_steps: int, state: State, meta: dict[str, Any]) -> None:
        """Have `state` written; it must be a copy that nobody changes."""
        with self._work:
            self._waiting = (opt_steps, state, meta)
            self._work.notify()

    def close(self, timeout_s: float) -> bool:
        """Write what waits and end; False if that took longer than `timeout_s`."""
        with self._work:
            self._closed = True
            self._work.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._waiting is not None or self._closed)
                if self._waiting is None:
                    return
                opt_steps, state, meta = self._waiting
                self._waiting = None
            try:
                self._checkpoints.save(opt_steps, state, meta)
            except CheckpointError as error:
                log.warning("checkpoint %d not written, trying again later: %s", opt_steps, error)
