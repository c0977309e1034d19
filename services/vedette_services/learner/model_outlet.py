"""The trainer's models on their way into the map: written beside the training, the newest wins."""

from __future__ import annotations

import threading
from collections.abc import Callable

from vedette_rl.core import ModelInfo
from vedette_services.model_map import ModelMapWriter


class ModelOutlet:
    """One thread that writes models into their map; a newer one takes the place of one that waits.

    Packing a model and summing its bytes takes several times as long as copying it, which is all
    that the training loop waits for.

    Args:
        models: where to; nobody else writes there.
        epoch: of the learner that makes them.
        tell: called when one is written.
    """

    def __init__(
        self, models: ModelMapWriter, epoch: int, tell: Callable[[], None] = lambda: None
    ) -> None:
        self._models, self._epoch, self._tell = models, epoch, tell
        self._work = threading.Condition()
        self._waiting: ModelInfo | None = None
        self._closed = False
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="models", daemon=True)
        self._thread.start()

    def publish(self, info: ModelInfo) -> None:
        """Have a model written; its arrays must not be written any more.

        Raises:
            Exception: what an earlier one met with.
        """
        self.check()
        with self._work:
            self._waiting = info
            self._work.notify()

    def check(self) -> None:
        """Nothing, as long as every model could be written; cheap.

        Raises:
            Exception: what one met with.
        """
        if self._failed is not None:
            raise self._failed

    def close(self, timeout_s: float) -> None:
        """Write what waits and end.

        Raises:
            TimeoutError: that is not done after `timeout_s`.
            Exception: what a model met with.
        """
        with self._work:
            self._closed = True
            self._work.notify()
        self._thread.join(timeout_s)
        self.check()
        if self._thread.is_alive():
            raise TimeoutError(f"the last model is not written after {timeout_s:g} s")

    def _run(self) -> None:
        try:
            while (info := self._next()) is not None:
                self._models.write(self._epoch, info)
                self._tell()
        except Exception as error:  # noqa: BLE001 - the training's thread is told, and raises it
            self._failed = error

    def _next(self) -> ModelInfo | None:
        """Wait for a model; None when closed and none is left."""
        with self._work:
            self._work.wait_for(lambda: self._waiting is not None or self._closed)
            info, self._waiting = self._waiting, None
            return info
