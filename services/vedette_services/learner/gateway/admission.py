"""Managers that the learner refuses: another key's id, an id in use, no place left.

`vedette_protocol.ledger.Ledger.may_use` decides whether an id is another key's; the refusals are
worded, limited and remembered here.
"""

from __future__ import annotations

from collections.abc import Mapping

from vedette_protocol import topics
from vedette_protocol.codec import encode
from vedette_protocol.errors import LedgerFullError, RetiredError
from vedette_protocol.ledger import Ledger
from vedette_protocol.messages import NO_PLACE, OUTBOX, Batch, Buffer, Refusal, Report
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.status.status import Refused
from vedette_services.status.stop_conditions import ENV_STEPS_REACHED

_REFUSALS_A_TURN = 64


_RIVALS_MAX = 256  # refused incarnations whose reason is remembered


_RIVALS_SHOWN_S = 60.0


class Admission:
    """Decides who is refused, counts it, and keeps the refusals to be sent.

    Args:
        rejections: the log of rejections.
    """

    def __init__(self, ledger: Ledger, rejections: RateLimitedLog) -> None:
        self._ledger = ledger
        self._rejections = rejections
        self.ids = self.places = self.rivals = self.late = 0
        self._refusals: list[Refusal] = []
        self._rivals: dict[int, str] = {}  # why an incarnation is refused for good
        self._last_rivals = (float("-inf"), "")  # when, and what

    def refuse_id(self, manager: str, incarnation: int, key: str, *, sends_refusal: bool) -> None:
        """Refuse a key that uses an id of another one.

        Args:
            sends_refusal: send it a refusal.
        """
        self.ids += 1
        self._rejections.add(
            "refused", f"key {key!r} speaks for manager {manager!r} of another key"
        )
        # Sent only to an incarnation that the owner never used: the topic is also the owner's, and
        # an impostor may name the owner's incarnation, or that of a second process of the owner.
        owned = incarnation in self._rivals or self._ledger.has_account(manager, incarnation)
        if sends_refusal and not owned:
            reason = f"the manager id {manager!r} belongs to another key; choose another id (--id)"
            self.refuse(manager, incarnation, "id", reason)

    def refuse(self, manager: str, incarnation: int, code: str, reason: str) -> None:
        """Send a refusal with the next acks."""
        if len(self._refusals) < _REFUSALS_A_TURN:
            self._refusals.append(Refusal(manager, incarnation, code, reason))

    def refuse_place(self, error: RetiredError | LedgerFullError, now: float) -> None:
        """Refuse an incarnation that has no account: else it would wait for ever."""
        assert error.sender is not None, "the ledger names the sender"
        manager, incarnation, _ = error.sender
        why = self._rivals.get(incarnation)
        if why is None:
            self.places += 1
            self._rejections.add("refused", str(error))
        else:
            self._last_rivals = now, why
        passes = why is None and not (isinstance(error, RetiredError) and error.replaced)
        self.refuse(manager, incarnation, NO_PLACE if passes else "id", why or str(error))

    def refuse_rival(self, first: Report, later: Report, now: float) -> None:
        """Refuse the later one of two live processes with one id: the other holds a window."""
        why = (
            f"two managers use the id {first.manager}: {first.host} and {later.host}; the one that "
            f"came later, on {later.host}, is refused: start it with another id (--id)"
        )
        if OUTBOX not in later.features:  # its files come back, as those of an ended one
            self._ledger.retire(later.manager, later.incarnation)
        self._rivals[later.incarnation] = why
        if len(self._rivals) > _RIVALS_MAX:
            del self._rivals[next(iter(self._rivals))]
        self._last_rivals = now, why
        self.rivals += 1
        self._rejections.add("refused", why)
        self.refuse(later.manager, later.incarnation, "id", why)

    def reject_late(self, batch: Batch) -> None:
        """Reject a batch that came after the run's last environment step."""
        self.late += batch.rows
        self._ledger.reject_batch(batch, ENV_STEPS_REACHED)

    def pop_refusals(self) -> list[list[Buffer]]:
        """Return the messages to send now."""
        refusals = self._refusals
        self._refusals = []
        return [[topics.manager_topic(refusal.manager), *encode(refusal)] for refusal in refusals]

    def refused(self, connections: Mapping[str, int] | None, *, credit: int) -> Refused:
        """Return the part of the status.

        Args:
            connections: the refused connections by reason.
            credit: batches beyond the limit of their manager.
        """
        return Refused(
            **(connections or {"keys": 0, "handshakes": 0, "frames": 0}),
            ids=self.ids,
            credit=credit,
            places=self.places,
            rivals=self.rivals,
            late=self.late,
        )

    def describe_rivals(self, now: float) -> str:
        """Return which two managers used one id within the last minute; "" if none did."""
        at, why = self._last_rivals
        return why if now - at < _RIVALS_SHOWN_S else ""
