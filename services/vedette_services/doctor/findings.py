"""What the doctor finds: one line each, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vedette_services.errors import DONE, FAILED, REFUSED


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its outcome.

    Args:
        check: what was looked at, in a word or two.
        state: "warn" where a run works all the same.
        said: what was found.
        mend: what to do about it.
        status: the exit status that this finding asks for.
    """

    check: str
    state: Literal["ok", "warn", "fail"]
    said: str
    mend: str = ""
    status: int = DONE

    def __str__(self) -> str:
        mend = f"; {self.mend}" if self.mend else ""
        return f"{self.state:<4}  {self.check:<12} {self.said}{mend}"


def ok(check: str, said: str) -> Finding:
    return Finding(check, "ok", said)


def warn(check: str, said: str, mend: str = "") -> Finding:
    return Finding(check, "warn", said, mend)


def fail(check: str, said: str, mend: str = "") -> Finding:
    """Something that keeps this host from taking part."""
    return Finding(check, "fail", said, mend, FAILED)


def refused(check: str, said: str, mend: str = "") -> Finding:
    """The other side says no, and trying again will not help."""
    return Finding(check, "fail", said, mend, REFUSED)
