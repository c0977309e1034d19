"""The state of a manager's connection to the learner, and when its sockets are made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SILENCE_S = 3.0
"""No control message for so long, and every socket is made again: libzmq may have given up on one
for good, and after a cut it comes back much later than a new socket does."""

JITTER_S = 0.5
"""Managers that lost the same learner do not all come back at the same moment."""

ANNOUNCE_WAIT_S = 30.0
"""A learner that is there but announces no run for so long may have done so in vain."""

STUCK_S = 30.0
"""Without a settled batch for so long, though there is credit, the samples' socket is dead."""

KEPT_S = 30.0
"""What was kept for an absent learner may wait so long after its return."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The names of a manager, its host and its learner.

    Args:
        learner: the learner's address, as the log names it.
    """

    manager: str
    host: str
    learner: str


class Connection:
    """The state of the sockets and the learner's heartbeat, from what the sockets bring.

    Args:
        jitter: gives a random number in [0, 1).
        now: seconds, monotonic.
    """

    def __init__(self, jitter: Callable[[], float], now: float) -> None:
        self._jitter = jitter
        self.silent = True
        """No control message has come for `SILENCE_S`."""
        self.ever_received = False
        """A control message has come at some time."""
        self.up = False
        """Sending makes sense, as far as is known."""
        self.connected = False
        """The samples' connection was seen being made."""
        self.resend = False
        """Sent batches may be lost; the next ack says which need not be sent again."""
        self.unheard = 0
        """Sockets in a row that were connected and brought messages of the learner, and no ack: as
        far as can be seen, nothing that is sent reaches it."""
        self._has_message = self._has_ack = False  # since the sockets are new
        self._heard_at = now
        self._acked_at = float("-inf")
        self._remake_at = now + SILENCE_S
        self._unannounced_since: float | None = None
        self._progress_at = now
        self._absent_at = float("-inf")

    @property
    def can_send(self) -> bool:
        """Return whether batches may be sent."""
        return self.up and not self.resend

    def on_new_sockets(self) -> None:
        """The sockets or their connection are new."""
        self.up = self.resend = True

    def on_disconnected(self) -> None:
        """The connection or the sockets are gone."""
        self.up = self.connected = False

    def on_message(self, now: float) -> bool:
        """A control message came; True if it ended a silence."""
        ended = self.silent
        self._has_message = True
        self.ever_received = True
        self.silent = False
        self._heard_at = now
        self._remake_at = now + SILENCE_S
        return ended

    def on_ack(self, now: float, *, announced: bool) -> None:
        """An ack came, of the run that was announced to us or of another."""
        self._has_ack = True
        if announced:
            self._unannounced_since = None
            self._acked_at = now
        elif self._unannounced_since is None:
            self._unannounced_since = now

    def on_paused(self, seconds: float, now: float) -> None:
        """This process itself stood still until now: what came meanwhile may not be read yet, so
        that this time is none in which the learner was silent."""
        self._heard_at = min(self._heard_at + seconds, now)
        self._acked_at = min(self._acked_at + seconds, now)
        self._remake_at = min(self._remake_at + seconds, now + SILENCE_S)
        self._progress_at = min(self._progress_at + seconds, now)
        if self._unannounced_since is not None:
            self._unannounced_since = min(self._unannounced_since + seconds, now)

    def silence_s(self, now: float) -> float:
        """Seconds since the last control message, or since the start."""
        return now - self._heard_at

    def is_acknowledged(self, now: float) -> bool:
        """Return whether acks of the run that we play have come lately."""
        return now - self._acked_at < SILENCE_S

    def is_answered(self, sent_at: float, now: float) -> bool:
        """Return whether an ack has come since a message; also where there are no acks at all."""
        return self._acked_at > sent_at or not self.is_acknowledged(now)

    def on_progress(self, now: float) -> None:
        """A batch was settled, or there is a reason why none is."""
        self._progress_at = now

    def kept_share(self, now: float) -> float:
        """Return the share of a window that may wait for a learner that is away; once it is back,
        less and less. Call it regularly."""
        if self.silent or not self.up:
            self._absent_at = now
        return max(0.0, 1.0 - (now - self._absent_at) / KEPT_S)

    def poll_remake(self, now: float, *, holds: bool) -> float | None:
        """Seconds to wait before new sockets; None while the old ones will do.

        Args:
            holds: the window holds batches.
        """
        since = self._unannounced_since
        unannounced = since is not None and now - since > ANNOUNCE_WAIT_S
        stuck = holds and not self.silent and now - self._progress_at > STUCK_S
        delay_s = None
        if now >= self._remake_at:
            delay_s = JITTER_S * self._jitter()
            self._remake_at = now + delay_s + SILENCE_S
            self.silent = True
            self._count_unheard()
        if unannounced or stuck:
            self._unannounced_since = None
            self._progress_at = now
            delay_s = delay_s or 0.0
        if delay_s is not None:
            self._has_message = self._has_ack = False
            self.on_disconnected()
        return delay_s

    def _count_unheard(self) -> None:
        is_unheard = self.connected and self._has_message and not self._has_ack
        self.unheard = self.unheard + 1 if is_unheard else 0
