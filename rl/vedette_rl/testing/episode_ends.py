"""Whether the last observations of episodes are really the first ones of the next."""

from __future__ import annotations

from collections.abc import Iterator

from vedette_rl.core import Columns

_BY_CHANCE = 0.01
"""So likely or less by chance, and it is none."""


class EpisodeEnds:
    """What observations began episodes, ended them, and came between.

    Many an honest episode ends where one begins: a bandit's, one of few states. So it is asked how
    likely it would be of all of them, if ends were like what comes between.
    """

    def __init__(self) -> None:
        self._first: set[int] = set()
        self._between: list[int] = []
        self._last: dict[str, list[int]] = {"terminated": [], "truncated": []}

    def add_start(self, obs: Columns) -> None:
        """A reset gave this observation, of one row."""
        self._first.add(_digest(obs))

    def add_middle(self, obs: Columns) -> None:
        """A step within an episode gave it."""
        self._between.append(_digest(obs))

    def add_end(self, obs: Columns, *, terminated: bool) -> None:
        """It is told as the last one of an episode."""
        self._last["terminated" if terminated else "truncated"].append(_digest(obs))

    def describe_ends_seen_as_starts(self) -> Iterator[tuple[int, str]]:
        """How many episodes ended in which way, where each of them ended on an observation that
        begins an episode, and hardly by chance. A time limit's wrapper ends its own way."""
        alike = sum(digest in self._first for digest in self._between)
        chance = (alike + 1) / (len(self._between) + 1)
        for way, last in self._last.items():
            if last and self._first.issuperset(last) and chance ** len(last) <= _BY_CHANCE:
                yield len(last), way


def _digest(obs: Columns) -> int:
    return hash(tuple(column.tobytes() for column in obs.values()))
