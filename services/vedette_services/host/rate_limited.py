"""What strangers make us say: the first at once, the rest by the number, at a bounded rate."""

from __future__ import annotations

from dataclasses import dataclass

EVERY_S = 10.0


@dataclass(slots=True)
class _Subject:
    last: str
    count: int = 0
    said_at: float = float("-inf")


class RateLimitedLog:
    """Lines that a peer can cause as often as he likes, by subject (a few fixed words)."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._subjects: dict[str, _Subject] = {}

    def add(self, subject: str, text: str) -> None:
        """Something happened."""
        entry = self._subjects.setdefault(subject, _Subject(text))
        entry.last = text
        entry.count += 1

    def due_lines(self, now: float) -> list[str]:
        """What to say now: at most a line a subject every `every_s`."""
        lines = []
        for subject, entry in self._subjects.items():
            if entry.count and now - entry.said_at >= self._every_s:
                more = f" (and {entry.count - 1:,} more)" if entry.count > 1 else ""
                lines.append(f"{subject}: {entry.last}{more}")
                entry.count, entry.said_at = 0, now
        return lines
