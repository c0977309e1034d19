"""The filter that decides which of the arriving models an actor host acts on."""

from __future__ import annotations

from vedette_protocol.errors import ModelError
from vedette_protocol.messages import Run
from vedette_protocol.model import CompleteModel, unpack_model

MODEL_WAIT_S = 10.0
"""Without any model for so long after a run was announced, or without the one that actors wait for,
the models are subscribed to again. So long a wait is said, too: its time goes on where the learner
comes back meanwhile."""


class ModelFilter:
    """Lets models pass, each at most once, ever newer ones.

    Args:
        now: seconds, monotonic.
    """

    def __init__(self, now: float) -> None:
        self._run: Run | None = None
        self._passed: tuple[int, int] | None = None  # epoch, version
        self._early: CompleteModel | None = None
        self._asked_at = now
        self._waits_since = now
        self._expected = (0, -1)  # epoch and version of a model that actors wait for

    def begin_run(self, run: Run, now: float) -> CompleteModel | None:
        """Another run begins; a model of it that came before its announcement passes now.

        Raises:
            ModelError: as `offer`.
        """
        if self._run is None or self._run.run_id != run.run_id or self._has_expected:
            self._waits_since = now
        self._run = run
        self._passed = None
        self._expected = (0, -1)
        self._asked_at = now
        early = self._early
        self._early = None
        return self.accept_model(early) if early is not None else None

    def accept_model(self, model: CompleteModel) -> CompleteModel | None:
        """The model, if it is to be acted on; None if it is old, or its run is not ours yet.

        Raises:
            ModelError: it is not of the run's spec, or a value is not finite.
        """
        run = self._run
        if run is None or model.run_id != run.run_id:
            self._early = model
            return None
        if self._passed is not None and (model.epoch, model.version) <= self._passed:
            return None
        if model.spec != run.model.hash:
            raise ModelError(f"model {model.version} is of spec {model.spec}, not the run's")
        unpack_model(model.body, run.model)
        self._passed = model.epoch, model.version
        return model

    def expect(self, epoch: int, version: int, now: float) -> None:
        """Actors wait for this model, or a newer one."""
        if self._has_expected:  # else it goes on waiting
            self._waits_since = now
            self._asked_at = now
        self._expected = epoch, version

    @property
    def _has_expected(self) -> bool:
        return self._passed is not None and self._passed >= self._expected

    @property
    def missing(self) -> str:
        """The model that actors wait for, as an adjective."""
        return "first" if self._passed is None else "next"

    @property
    def other_run(self) -> str:
        """The run whose models come, where that is another one than is played; else ""."""
        return self._early.run_id if self._early is not None else ""

    def waits_long(self, now: float) -> bool:
        """Return whether the run's first model, or the one that actors wait for, has not come for
        `MODEL_WAIT_S`."""
        waits = self._run is not None and not self._has_expected
        return waits and now >= self._waits_since + MODEL_WAIT_S

    def should_resubscribe(self, now: float) -> bool:
        """Return whether to ask for the newest model again: now and then, until the first one of
        the run is here, or the one that actors wait for."""
        if not self.waits_long(now) or now < self._asked_at + MODEL_WAIT_S:
            return False
        self._asked_at = now
        return True
