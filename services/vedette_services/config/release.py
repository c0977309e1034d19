"""Tells a run with settings of a newer release from one with a mistyped key."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from vedette_protocol.foreign_text import printable
from vedette_rl.settings.key_suggestions import UNKNOWN_KEY
from vedette_services.errors import NewerRunError, SettingError
from vedette_services.host.system import vedette_version

PROVENANCE = "provenance.json"
_PROVENANCE_MAX_BYTES = 4 << 20  # of 500 starts: less than 1 MiB


def check_release(saved: Path, errors: Sequence[SettingError]) -> None:
    """Refuse a run's saved configuration as another release's if that is what is wrong with it.

    A release writes every key that it knows, so a key that is not known is a newer one's, or was
    written by hand, unless an older release was the last to start the run. Where a newer one was
    the last, every value that is wrong is its.

    Args:
        saved: the file.
        errors: what is wrong with the configuration, with where it comes from.

    Raises:
        NewerRunError: names the keys, and the release that is needed, as far as that is known.
    """
    wrong = [error for error in errors if error.source == str(saved)]
    here = vedette_version()
    theirs = last_release(saved.with_name(PROVENANCE)) if wrong else ""
    is_newer = bool(theirs and here) and _number(theirs) > _number(here)
    is_older = bool(theirs and here) and _number(theirs) < _number(here)
    unknown = [error.key for error in wrong if is_newer or error.why == UNKNOWN_KEY]
    if unknown and not is_older:
        raise NewerRunError(saved, unknown, theirs, here, is_newer=is_newer)


def last_release(provenance: Path) -> str:
    """The release of vedette that started a run last; "" where that is not known."""
    try:
        with provenance.open("rb") as file:
            starts = json.loads(file.read(_PROVENANCE_MAX_BYTES))
        return printable(str(starts[-1]["versions"]["vedette"]))
    except (OSError, ValueError, RecursionError, TypeError, KeyError, IndexError):
        return ""


def _number(release: str) -> tuple[int, ...]:
    """The numbers of a release, to be compared."""
    return tuple(map(int, re.findall(r"\d+", release)))[:3]
