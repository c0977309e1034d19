"""Checks that who waits says why: a manager in its log; a gateway in acks, status and log.

Every cause of a wait has a line of its own: another one does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from counting_ring import InvariantError  # beside this file

from vedette_protocol.account import ManagerEntry
from vedette_protocol.messages import Ack, ControlMessage, Run, Stop
from vedette_services.learner.gateway.flow_control import ANYWAY_S
from vedette_services.learner.gateway.state import GatewayState
from vedette_services.simulation.network import VirtualClock

if TYPE_CHECKING:
    from simulated_fleet import SimulatedFleet

_LINES = {
    "silence": ("waiting for the learner at ", "no word from ", "connecting again to "),
    "credit": ("the learner takes no samples now: ",),
    "starting": ("the learner at memory is there and announces no run yet: ",),
    "rejected": ("the learner rejects batches of this manager: ", "the run has all its samples: "),
    "model": ("actors wait for the learner's first model",),
}
"""The causes for which a manager waits, and how their lines begin."""

# Clocks run up to 5 % wrong; lines that repeat come every 30 s; sockets are made anew every 3.5 s.
_REPEATED_S = 37.0
_SILENT_S = 5.0
_NO_CREDIT_S = 10.6
_NO_MODEL_S = 12.0
_HEARTBEAT_S = 0.5  # beyond what a quiet gateway leaves between two acks


class ManagerWaits:
    """The waits of one manager, from what it is sent, and the lines that it logs."""

    def __init__(self, now: float) -> None:
        self._logged: dict[str, float] = {}  # when a line of each cause was logged last
        self._heard_at = self._in_touch_at = now
        self._no_credit: tuple[float, float] | None = None  # since, and the last such ack
        self._at: dict[str, float] = {}  # when an ack had this cause last
        self._no_model_since: float | None = None

    def on_control(self, message: ControlMessage, now: float, *, joined: bool, ours: bool) -> None:
        """Note a message that the manager is about to handle.

        Args:
            joined: it plays a run, or leaves.
            ours: an ack of its window.
        """
        if isinstance(message, Run | Ack | Stop):
            self._heard_at = now
        if not isinstance(message, Ack):
            return
        if not joined:
            self._at["starting"] = now
        if not ours:
            return
        if message.rejected_reason:
            self._at["rejected"] = now
        since = self._no_credit[0] if self._no_credit else now
        self._no_credit = (since, now) if message.reason else None

    def on_line(self, text: str, now: float) -> bool:
        """Note a line of the log; True if it names the cause of a wait."""
        if text.startswith("in touch with "):
            self._in_touch_at = now
            self._logged.pop("silence", None)
        for cause, beginnings in _LINES.items():
            for beginning in beginnings:
                if text.startswith(beginning) and (len(text) > len(beginning) or cause == "model"):
                    self._logged[cause] = now
                    return True
        return False

    def on_model(self, now: float | None) -> None:
        """Note that the first model is waited for since `now`; None: it has come."""
        self._no_model_since = now

    def missing(self, now: float, awake_at: float) -> str:
        """Return which wait has no line; "" if each has.

        Args:
            awake_at: the manager's process runs since then.
        """
        if now - max(self._heard_at, awake_at) > _SILENT_S and not self._was_logged("silence", now):
            return f"hears nothing since {self._heard_at:.1f} s"
        for cause, at in self._at.items():
            if not self._was_logged(cause, at):
                return f"waits, and of its acks the cause is: {cause}"
        if self._no_credit is not None:
            since, last = self._no_credit
            if last - since > _NO_CREDIT_S and not self._was_logged("credit", last):
                return f"has no credit since {since:.1f} s"
        if self._no_model_since is not None and now - self._heard_at < _SILENT_S / 2:
            since = max(self._no_model_since, awake_at, self._in_touch_at)
            if now - since > _NO_MODEL_S and not self._was_logged("model", now - 10.0):
                return f"has no model since {self._no_model_since:.1f} s"
        return ""

    def _was_logged(self, cause: str, at: float) -> bool:
        return self._logged.get(cause, float("-inf")) >= at - _REPEATED_S


class GatewayWaits:
    """What one gateway says of those that wait for it. Raises `InvariantError`."""

    def __init__(self, fleet: SimulatedFleet, state: GatewayState) -> None:
        self._fleet = fleet
        self._state: Any = state  # with its private parts
        self._acked: dict[str, float] = {}  # when a manager was sent an ack last
        self._living = state.ledger.living = _LivingManagers(state.ledger.living, fleet.clock)
        self._rejected: dict[tuple[str, int], int] = {}  # batches, at the first ack
        self._reason = ""  # of the last ack
        self._rejects = self._last_rejected = False  # this message, and the last one
        self._gone: list[str] = []
        for owner, method in (
            *((state, "on_samples"), (state, "_reject"), (state, "blocks"), (state, "tick")),
            (state.ledger, "mark_gone"),
        ):
            after = getattr(self, f"_after_{method.strip('_')}")
            setattr(owner, method, _followed(getattr(owner, method), after))

    def _after_on_samples(self, *_: Any) -> None:
        self._last_rejected = self._rejects
        self._rejects = False

    def _after_reject(self, *_: Any) -> None:
        self._rejects = True

    def _after_blocks(self, *_: Any) -> None:
        if self._last_rejected and not self._state.rejecting:
            raise InvariantError("the last batch was rejected, and the status does not say why")

    def _after_mark_gone(self, manager: str) -> None:
        self._gone.append(manager)

    def _after_tick(self, *_: Any) -> None:
        lines = [line.text for line in self._state.log_lines.waiting] if self._gone else []
        for manager in self._gone:
            if not any(f"manager {manager} has been silent" in line for line in lines):
                raise InvariantError(f"{manager} counts as gone, and the log does not say so")
        self._gone.clear()

    def on_ack(self, ack: Ack) -> None:
        """Check an ack that is about to be sent."""
        sender = (ack.manager, ack.incarnation)
        state = self._state
        self._acked[ack.manager] = self._fleet.clock.now
        self._reason = ack.reason if state._run is not None else ""
        more = ack.rejected_batches > self._rejected.setdefault(sender, ack.rejected_batches)
        if more and not ack.rejected_reason:
            raise InvariantError(f"an ack to {ack.manager} does not say why it rejects")
        if ack.reason or not state.fleet.knows(ack.manager):
            return
        if state.ledger.account(*sender).open_batches <= 0:
            raise InvariantError(f"an ack to {ack.manager} grants nothing, and does not say why")

    def check(self, awake_at: float) -> None:
        """Check status and heartbeat.

        Args:
            awake_at: the gateway's process runs since then.
        """
        gateway = self._fleet.gateway
        now = self._fleet.clock.now
        assert gateway is not None
        if self._reason and not gateway.status().limiter_reason:
            raise InvariantError("acks say why managers wait, and the status does not")
        most_s = max(ANYWAY_S, min(1.0, 5e-4 * len(self._living))) + _HEARTBEAT_S
        for manager, since in self._living.since.items():
            at = max(self._acked.get(manager, since), since)
            if now - max(at, awake_at) > most_s:
                raise InvariantError(f"{manager} is alive, and gets no ack since {at:.1f} s")


class _LivingManagers(dict[str, ManagerEntry]):
    """The living managers of a ledger, and since when each is alive."""

    def __init__(self, living: dict[str, ManagerEntry], clock: VirtualClock) -> None:
        super().__init__(living)
        self._clock = clock
        self.since = dict.fromkeys(living, clock.now)

    def __setitem__(self, manager: str, entry: ManagerEntry) -> None:
        self.since.setdefault(manager, self._clock.now)
        super().__setitem__(manager, entry)

    def pop(self, manager: str, default: Any = None) -> Any:
        self.since.pop(manager, None)
        return super().pop(manager, default)


def _followed(method: Callable[..., Any], after: Callable[..., None]) -> Callable[..., Any]:
    """Return a method that calls `after` with the same arguments when it has returned."""

    def call(*given: Any, **named: Any) -> Any:
        result = method(*given, **named)
        after(*given)
        return result

    return call
