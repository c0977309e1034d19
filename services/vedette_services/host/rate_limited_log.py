"""Rate-limited logging: lines that could repeat without end, by subject."""

from __future__ import annotations

from dataclasses import dataclass

EVERY_S = 10.0


@dataclass(slots=True)
class _Subject:
    last: str
    count: int = 0  # added since the last line was logged
    logged: str = ""
    logged_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the log."""

    level: str
    text: str


class LogLines:
    """Lines of a state object, which its daemon takes and logs, a few at a time.

    Args:
        most: the most lines at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.waiting = list[LogLine]()

    def add(self, level: str, text: str) -> None:
        """Add a line."""
        self.waiting.append(LogLine(level, text))

    def pop(self) -> list[LogLine]:
        """Return the lines to log now; of more than a few only their number."""
        lines = self.waiting[: self._most]
        more = len(self.waiting) - self._most
        self.waiting.clear()
        return lines + [LogLine("warning", f"and {more} more lines like these")] * (more > 0)


class RateLimitedLog:
    """Decides which lines are logged. Subjects are a few fixed words.

    ::

        rejections.add("rejected", f"batch {seq} of {manager}: {error}")  # as often as peers like
        for line in rejections.due_lines(now): log.warning("%s", line)

        if repeats.should_log("credit", text, now): log.info(text)
        repeats.reset("credit")                       # the next line is a new one

        if failures.first("summary.json"): log.warning("not written: %s", error)
        failures.reset("summary.json")                # written again

    Args:
        every_s: the least time from a line to the next of its subject.
        changed_s: the same where the text is another one; None: `every_s`.
    """

    def __init__(self, every_s: float = EVERY_S, *, changed_s: float | None = None) -> None:
        self._every_s = every_s
        self._changed_s = every_s if changed_s is None else changed_s
        self._subjects: dict[str, _Subject] = {}

    def add(self, subject: str, text: str) -> None:
        """Count a line for `due_lines`, which logs the newest of a subject."""
        entry = self._subjects.setdefault(subject, _Subject(text))
        entry.last = text
        entry.count += 1

    def due_lines(self, now: float) -> list[str]:
        """The lines to log now, each with the number of those that it stands for."""
        lines = []
        for subject, entry in self._subjects.items():
            if entry.count and self._log(entry, now):
                more = f" (and {entry.count - 1:,} more)" if entry.count > 1 else ""
                lines.append(f"{subject}: {entry.last}{more}")
                entry.count = 0
        return lines

    def should_log(self, subject: str, text: str, now: float) -> bool:
        """Return whether to log this line now."""
        entry = self._subjects.setdefault(subject, _Subject(text))
        entry.last = text
        return self._log(entry, now)

    def first(self, subject: str) -> bool:
        """Return whether nothing was logged of `subject` yet, or since `reset`."""
        return self.should_log(subject, "", 0.0)

    def reset(self, subject: str) -> None:
        """Forget a subject: its next line is logged at once."""
        self._subjects.pop(subject, None)

    def _log(self, entry: _Subject, now: float) -> bool:
        wait_s = self._every_s if entry.last == entry.logged else self._changed_s
        if now - entry.logged_at < wait_s:
            return False
        entry.logged = entry.last
        entry.logged_at = now
        return True
