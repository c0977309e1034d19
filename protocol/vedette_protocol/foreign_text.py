"""Sanitizes texts of foreign origin: one printable line, for terminals, logs and pages."""

from __future__ import annotations

import re
from typing import Final

from vedette_protocol.limits import TEXT_MAX_CHARS

_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but tab and line feed, characters that change the direction of the text after
them, and halves of surrogate pairs, which UTF-8 cannot encode."""


def replace_unprintable(text: str) -> str:
    """Replace what a terminal or a page would execute instead of showing it; lines stay lines."""
    return _UNPRINTABLE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Make one printable line of a line that may hold texts of whatever origin; its spaces stay."""
    return replace_unprintable(re.sub(r"\s", " ", text))


def printable(text: str, max_chars: int | None = TEXT_MAX_CHARS) -> str:
    """Make one printable line of a text of whatever origin.

    Args:
        max_chars: the rest is cut off; None: nothing is.
    """
    return replace_unprintable(" ".join(text.split())[:max_chars])
