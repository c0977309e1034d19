"""Who keeps to the credit that acks gave: what comes beyond it is not taken.

Between two acks to a manager, batches that are new can only be some that it counted as outstanding
when it sent them, and of those there are no more than the credit of an ack that it had heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

REMEMBERED_S = 30.0
"""A manager may act on an ack that is so old: what was under way when its credit was cut still
counts."""

Sender = tuple[str, int]
"""A manager's id and its incarnation."""


@dataclass(slots=True)
class _Given:
    acks: deque[tuple[float, int]] = field(default_factory=deque)  # when, and how many batches
    allowed: int = 0
    since_ack: int = 0


class CreditWatch:
    """Counts new batches between acks.

    Args:
        at_first: batches a manager may send before anything is known of its credit.
    """

    def __init__(self, at_first: int) -> None:
        self._at_first = at_first
        self._given: dict[Sender, _Given] = {}

    def is_spent(self, manager: str, incarnation: int) -> bool:
        """Whether one more new batch of this manager would be beyond its credit."""
        given = self._given.get((manager, incarnation))
        return given is not None and given.since_ack >= given.allowed

    def took(self, manager: str, incarnation: int) -> None:
        """A new batch of this manager was taken."""
        given = self._given.get((manager, incarnation))
        if given is not None:
            given.since_ack += 1

    def granted(self, manager: str, incarnation: int, batches: int, now: float) -> None:
        """An ack goes out that gives so much."""
        given = self._given.get((manager, incarnation))
        if given is None:
            # It may have heard more from the learner before this one.
            given = self._given[manager, incarnation] = _Given()
            given.acks.append((now, self._at_first))
        acks = given.acks
        if acks[-1][1] != batches:
            acks.append((now, batches))
        elif len(acks) > 1:
            acks[-1] = (now, batches)
        while len(acks) > 1 and acks[0][0] < now - REMEMBERED_S:
            acks.popleft()
        given.allowed = max(credit for _, credit in acks)
        given.since_ack = 0

    def keep(self, living: Iterable[Sender]) -> None:
        """Forget all others."""
        living = set(living)
        for gone in [sender for sender in self._given if sender not in living]:
            del self._given[gone]
