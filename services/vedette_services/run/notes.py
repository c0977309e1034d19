"""What somebody has noted about a run: tags, and a text, in ``RUN/notes.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette_protocol.foreign_text import printable
from vedette_rl.storage.atomic_files import replace_file
from vedette_rl.storage.regular_files import read_bytes
from vedette_rl.storage.write_errors import describe_write_error
from vedette_services.errors import SettingError

NOTES_FILE = "notes.json"
TAGS_MAX = 32
TAG_CHARS, NOTE_CHARS = 40, 2000


@dataclass(frozen=True, slots=True)
class Notes:
    """Tags in the order in which they were given, and a text.

    Args:
        damage: why the file cannot be read, so that it counts as empty; "" where it can.
    """

    tags: tuple[str, ...] = ()
    note: str = ""
    damage: str = ""


def read_notes(run: Path) -> Notes:
    """Read them, short and printable; a file that is missing, damaged or somebody else's has
    none."""
    try:
        table = _read_table(run)
    except (OSError, ValueError, RecursionError) as error:
        return Notes(damage=printable(f"{NOTES_FILE} {_describe(error)}", NOTE_CHARS))
    tags = [printable(tag, TAG_CHARS) for tag in table["tags"]][:TAGS_MAX]
    return Notes(tuple(tags), printable(table["note"], NOTE_CHARS))


def _read_table(run: Path) -> dict[str, Any]:
    """Read the file as it is, with `tags` and `note`, whose numbers are read as texts; without one
    both are empty.

    Raises:
        OSError: it cannot be read.
        ValueError, RecursionError: it is damaged.
    """
    try:
        table = json.loads(read_bytes(run / NOTES_FILE))
    except FileNotFoundError:
        table = {}
    if not isinstance(table, dict):
        raise ValueError("it has no table")
    table = {"tags": [], "note": "", **table}
    if not isinstance(table["tags"], list) or not all(map(_is_text, table["tags"])):
        raise ValueError("tags is no list of texts")
    if not _is_text(table["note"]):
        raise ValueError("note is no text")
    return {**table, "tags": [*map(str, table["tags"])], "note": str(table["note"])}


def _is_text(value: object) -> bool:
    """True for a text, and for a number, which somebody has written without quotes."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _describe(error: Exception) -> str:
    match error:
        case OSError():
            return f"cannot be read: {error.strerror or error}"
        case json.JSONDecodeError():
            return f"is no JSON: {error}"
        case RecursionError():
            return "is nested too deeply"
    return f"is damaged: {error}"


def write_notes(
    run: Path, *, add: Iterable[str] = (), remove: Iterable[str] = (), note: str | None = None
) -> Notes:
    """Change the tags of a run, and its text unless that is None; return what it has now.

    Further keys of the file, which somebody has written by hand, stay.

    Raises:
        SettingError: there are too many tags, one is too long, or they cannot be written; or the
            file is damaged, and stays as it is.
    """
    try:
        before = _read_table(run)
    except (OSError, ValueError, RecursionError) as error:
        fix = "correct it, or rename it to begin anew; it was not changed"
        raise SettingError(str(run / NOTES_FILE), _describe(error), fix) from error
    gone = set(remove)
    added = [tag.strip() for tag in add]
    if odd := [tag for tag in added if not 0 < len(tag) <= TAG_CHARS or not tag.isprintable()]:
        raise SettingError("--tag", f"{odd[0]!r}", f"name it in 1 to {TAG_CHARS} characters")
    tags = tuple(dict.fromkeys(tag for tag in [*before["tags"], *added] if tag not in gone))
    if len(tags) > TAGS_MAX:
        raise SettingError("--tag", f"{len(tags)} tags", f"a run has at most {TAGS_MAX}")
    text = before["note"] if note is None else note
    if len(text) > NOTE_CHARS:
        raise SettingError("--note", f"{len(text):,} characters", f"at most {NOTE_CHARS:,}")
    notes = Notes(tags, text)
    try:
        replace_file(run / NOTES_FILE, json.dumps({**before, "tags": tags, "note": text}))
    except OSError as error:
        why = describe_write_error(error, run)
        raise SettingError(str(run / NOTES_FILE), why, "write where the run is yours") from error
    return notes
