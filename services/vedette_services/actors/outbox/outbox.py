"""A manager's outbox: its own session, and those that processes before it have left.

::

    outbox = Outbox(files)
    window = outbox.begin(run, manager, incarnation, on_full)    # of each run that is joined
    for batch in outbox.next_batches(now): send(encode(batch))
    for report in outbox.ended_reports(host, now): send(encode(report))
    outbox.on_ack(ack, now, is_current=True)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from vedette_protocol.messages import OUTBOX, Ack, ActorReport, Batch, Refusal, Report, Run
from vedette_protocol.send_window import OnFull
from vedette_services.actors.outbox.files import OutboxFiles, Session
from vedette_services.actors.outbox.window import Following, OutboxWindow

_OPEN_MAX: Final = 3
"""Ended sessions that are reported at a time: of each manager a learner keeps five accounts."""

_SHARE: Final = 4
"""One of so many batches is of an ended session, while there are some: live samples come first."""

_REFUSED_S: Final = 60.0
"""A refused session is tried again after so long."""


class Outbox:
    """Chooses the sessions that are sent: its own, and the oldest ended ones beside it.

    A learner that knows no outbox sees one session at a time, the oldest first: it refuses two
    that report side by side.
    """

    def __init__(self, files: OutboxFiles) -> None:
        self.files = files
        self.own: OutboxWindow | None = None
        self._following = Following()
        self._ended: list[OutboxWindow] = []  # those of the run, oldest first
        self.uploaded = 0
        """Rows of ended sessions that this process has sent and the learner has stored."""

    @property
    def ended_rows(self) -> int:
        """Rows of ended sessions of the run that are not stored."""
        return sum(window.rows for window in self._ended)

    @property
    def is_empty(self) -> bool:
        """True if this process's session holds nothing."""
        return self.own is None or not self.own.session.held

    def begin(self, run: Run, manager: str, incarnation: int, on_full: OnFull) -> OutboxWindow:
        """Begin a session in a run. What belongs to the same one, and has ended, is sent beside."""
        if self.own is not None:
            self.files.end(self.own.session)
            if self.own.run_id != run.run_id:  # whose epochs are no others'
                self._following = Following()
        usable = [session for session in self.files.sessions if _can_send(session, run)]
        self._ended = [
            OutboxWindow(self.files, session, self._following)
            for session in usable
            if session.ended
        ]
        session = self.files.begin(manager, run.run_id, run.schema.hash, incarnation)
        self.own = OutboxWindow(
            self.files, session, self._following, on_full=on_full, droppable=usable
        )
        self.on_run(run)
        return self.own

    def on_run(self, run: Run) -> None:
        """Note what the learner that has announced itself knows.

        What a learner of an earlier epoch had stored, it may not have: reports say from now on that
        all of it is held, and its first acks what it has.
        """
        following = self._following
        following.is_older = OUTBOX not in run.features
        if following.learner is None or run.epoch <= following.learner[0]:
            return
        following.learner = (run.epoch, run.learner)
        following.changes += 1
        for window in self._windows():
            window.follow()
        self.on_new_sockets()

    def foreign_sessions(self, run: Run) -> list[Session]:
        """Return the sessions of other runs, or of rows that this one does not take."""
        return [session for session in self.files.sessions if not _can_send(session, run)]

    def follow_older(self) -> None:
        """Let acks of an older epoch count: the run was put back, and its learner is followed."""
        self._following.learner = None
        self.on_new_sockets()

    def on_new_sockets(self) -> None:
        """What was sent may be lost: the next acks say what need not be sent again."""
        for window in self._windows():
            window.awaits_ack = True

    def on_ack(self, ack: Ack, now: float, *, is_current: bool) -> int:
        """Take an ack of an ended session. Return the rows settled."""
        window = self._find(ack.manager, ack.incarnation)
        if window is None:
            return 0
        before = window.uploaded
        settled = window.on_ack(ack, now, is_current=is_current)
        self.uploaded += window.uploaded - before
        self._ended = [each for each in self._ended if each.session.held]
        return settled

    def on_refusal(self, refusal: Refusal, now: float) -> OutboxWindow | None:
        """Set an ended session aside for a while. Return it, where it is one of ours."""
        window = self._find(refusal.manager, refusal.incarnation)
        if window is not None:
            window.refused_until = now + _REFUSED_S
        return window

    def next_batches(self, now: float, limit: int = 64) -> list[Batch]:
        """Return the batches to send now, at most `limit`."""
        uploaded = next((each for each in self._open(now) if _is_to_send(each)), None)
        batches: list[Batch] = []
        if self.own is not None and self.may_report_own(now) and not self.own.awaits_ack:
            mine = limit if uploaded is None else limit - limit // _SHARE
            batches = self.own.next_batches(now, mine)
        if uploaded is not None and not uploaded.awaits_ack:
            most = limit // _SHARE if self.own is not None and self.own.batches else limit
            batches += uploaded.next_batches(now, most)
        return batches

    def put_back(self, batches: Sequence[Batch]) -> None:
        """Send these again, because the socket did not accept them."""
        for window in self._windows():
            mine = [batch for batch in batches if batch.incarnation == window.incarnation]
            window.put_back(mine)

    def resend_stalled(self, now: float) -> None:
        """Send batches of ended sessions again that acks do not settle."""
        for window in self._open(now):
            window.resend_stalled(now)

    def may_report_own(self, now: float) -> bool:
        """Return whether the learner may see this process's session now."""
        return not (self._following.is_older and self._open(now))

    def ended_reports(
        self, host: str, now: float, actors: tuple[ActorReport, ...] = ()
    ) -> list[Report]:
        """Return the reports of ended sessions: only acks say what is safe.

        Args:
            actors: of this process. An older learner counts them for the session that it sees.
        """
        shown = actors if self._following.is_older else ()
        return [window.make_report(host, "running", shown) for window in self._open(now)]

    @property
    def shows_one_session(self) -> bool:
        """True if the learner sees one session at a time."""
        return self._following.is_older

    def close(self) -> None:
        """Sync, and leave the folder."""
        self.files.close()

    def _windows(self) -> Iterable[OutboxWindow]:
        return [*self._ended, *([self.own] if self.own is not None else [])]

    def _open(self, now: float) -> list[OutboxWindow]:
        """The ended sessions that the learner hears of now.

        First those of which something is to be stored: others may wait long until they are safe,
        or until their files are back.
        """
        waiting = [each for each in self._ended if each.refused_until <= now]
        if self._following.is_older:
            return [each for each in waiting if not each.waits_for_files][:1]
        waiting.sort(key=lambda each: not _is_to_send(each))
        return waiting[:_OPEN_MAX]

    def _find(self, manager: str, incarnation: int) -> OutboxWindow | None:
        for window in self._ended:
            if (window.manager, window.incarnation) == (manager, incarnation):
                return window
        return None


def _is_to_send(window: OutboxWindow) -> bool:
    """Return whether something of a session is to be stored, and its files can be read."""
    return window.rows > 0 and not window.waits_for_files


def _can_send(session: Session, run: Run) -> bool:
    """Return whether a learner of this run takes the batches of a session."""
    if (session.run_id, session.schema) != (run.run_id, run.schema.hash):
        return False
    return all(
        batch.numbers.rows <= run.batch_rows and batch.numbers.env_steps <= run.batch_env_steps
        for batch in session.held.values()
    )
