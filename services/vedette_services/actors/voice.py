"""A log that says what is new at once and what repeats itself at a bounded rate."""

from __future__ import annotations


class Voice:
    """Remembers what was said when, by subject."""

    def __init__(self, every_s: float = 30.0) -> None:
        self._every_s = every_s
        self._said: dict[str, tuple[str, float]] = {}

    def should_say(self, subject: str, text: str, now: float) -> bool:
        """Whether to say this now: it is not what was said last, or that was long ago.

        A subject that alternates is said at most ten times as often as one that repeats itself.
        """
        said = self._said.get(subject)
        if said is not None:
            wait_s = self._every_s if said[0] == text else self._every_s / 10
            if now - said[1] < wait_s:
                return False
        self._said[subject] = (text, now)
        return True

    def over(self, subject: str) -> bool:
        """What was said of this subject holds no more; True if anything was said."""
        return self._said.pop(subject, None) is not None
