"""What a sender knows of the batches of one incarnation that it has sent, wherever it holds them.

::

    sent = SentBatches(manager, incarnation, run_id)
    while sent.again and len(batches) < limit: send(sent.again.popleft())
    sent.sent_at[seq] = now                       # it is outstanding
    if sent.concerns(ack, known):                 # of this run, and of no older epoch
        sent.on_ack(ack, now, end)
        ...                                       # settled: sent.sent_at.pop(seq, None)
    sent.resend_stalled(now)                      # every second
    send(encode(make_report(window, host, state)))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from vedette_protocol.errors import AckError
from vedette_protocol.messages import Ack, ActorReport, Report, ReportedState

STALL_S: Final = 5.0


class SentBatches:
    """The numbers that were sent and are not settled, and the limits that acks have set.

    Attributes:
        sent_at: the outstanding ones, and the time of sending. The caller adds them, and takes
            those out that are settled.
        again: those to send again, ascending. Some may be settled meanwhile.
        limit: sequence numbers below it may be sent: the highest limit of an ack.
        rejected: rows that the learner has rejected.
        resent: batches that were sent again.
    """

    def __init__(self, manager: str, incarnation: int, run_id: str) -> None:
        self._manager = manager
        self._incarnation = incarnation
        self._run_id = run_id
        self.sent_at: dict[int, float] = {}
        self.again: deque[int] = deque()
        self.limit = 0
        self.rejected = 0
        self.resent = 0
        self._acked_at = float("-inf")

    def concerns(self, ack: Ack, known: tuple[int, int] | None) -> bool:
        """Return True for an ack of this incarnation and run that is of no older epoch.

        Args:
            known: epoch and name of the learner that is followed; None: none yet.
        """
        if ack.manager != self._manager or ack.incarnation != self._incarnation:
            return False
        return ack.run_id == self._run_id and (known is None or ack.epoch >= known[0])

    def on_ack(self, ack: Ack, now: float, end: int | None) -> None:
        """Take the limits of an ack.

        Args:
            end: above all numbers that were given; None: not known.

        Raises:
            AckError: it acknowledges batches that never were. Nothing is changed.
        """
        if end is not None and ack.beyond > end:
            raise AckError(ack.beyond, end)
        self._acked_at = now
        self.limit = max(self.limit, ack.limit)
        self.rejected = max(self.rejected, ack.rejected_rows)

    def resend_stalled(self, now: float, after_s: float = STALL_S) -> int:
        """Have batches sent again that an ack `after_s` after their sending did not settle. Return
        the number.

        Without acks no single batch is stalled; new sockets are the remedy then.
        """
        if now - self._acked_at >= after_s:
            return 0
        sent_before = self._acked_at - after_s
        return self.send_again([seq for seq, at in self.sent_at.items() if at <= sent_before])

    def send_again(self, numbers: Iterable[int]) -> int:
        """Count these as not sent. Return the number that counted as sent before."""
        marked = [seq for seq in numbers if self.sent_at.pop(seq, None) is not None]
        if marked:
            self.again = deque(sorted([*self.again, *marked]))
        return len(marked)

    def forget(self) -> int:
        """Count all as not sent and none as to be sent again. Return the number that was sent."""
        outstanding = len(self.sent_at)
        self.sent_at.clear()
        self.again.clear()
        return outstanding


class ReportedWindow(Protocol):
    """What holds the batches of an incarnation: its counts, of what is not settled."""

    @property
    def manager(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def run_id(self) -> str: ...
    @property
    def produced(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def sequenced(self) -> int: ...
    @property
    def base(self) -> int: ...
    @property
    def limit(self) -> int: ...


def make_report(
    window: ReportedWindow,
    host: str,
    state: ReportedState,
    actors: tuple[ActorReport, ...] = (),
    *,
    delay_s: float | None = None,
    failures: int = 0,
    features: tuple[str, ...] = (),
    ended: bool = False,
    memory_rows: int = 0,
) -> Report:
    """Make the report of an incarnation with its counts.

    Args:
        features: that the sender uses, beside those of every report.
        ended: nobody numbers its batches further.
        memory_rows: rows of the sender that its outbox could not write.
    """
    return Report(
        manager=window.manager,
        incarnation=window.incarnation,
        host=host,
        state=state,
        run_id=window.run_id,
        produced=window.produced,
        dropped=window.dropped,
        window_batches=window.batches,
        window_rows=window.rows,
        window_bytes=window.bytes,
        sequenced=window.sequenced,
        base=window.base,
        actors=actors,
        limit=window.limit,
        features=features,
        delay_s=delay_s,
        failures=failures,
        ended=ended,
        memory_rows=memory_rows,
    )
