"""What somebody has noted about a run: tags, and a text, in ``RUN/notes.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

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
    """Tags in the order in which they were given, and a text."""

    tags: tuple[str, ...] = ()
    note: str = ""


def read_notes(run: Path) -> Notes:
    """Read them; a file that is missing, damaged or somebody else's has none."""
    try:
        table = json.loads(read_bytes(run / NOTES_FILE))
        tags = [printable(str(tag), TAG_CHARS) for tag in table.get("tags", ())][:TAGS_MAX]
        return Notes(tuple(tags), printable(str(table.get("note", "")), NOTE_CHARS))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return Notes()


def write_notes(
    run: Path, *, add: Iterable[str] = (), remove: Iterable[str] = (), note: str | None = None
) -> Notes:
    """Change the tags of a run, and its text unless that is None; return what it has now.

    Raises:
        SettingError: there are too many tags, one is too long, or they cannot be written.
    """
    before = read_notes(run)
    gone = set(remove)
    added = [tag.strip() for tag in add]
    if odd := [tag for tag in added if not 0 < len(tag) <= TAG_CHARS or not tag.isprintable()]:
        raise SettingError("--tag", f"{odd[0]!r}", f"name it in 1 to {TAG_CHARS} characters")
    tags = tuple(dict.fromkeys(tag for tag in [*before.tags, *added] if tag not in gone))
    if len(tags) > TAGS_MAX:
        raise SettingError("--tag", f"{len(tags)} tags", f"a run has at most {TAGS_MAX}")
    text = before.note if note is None else note
    if len(text) > NOTE_CHARS:
        raise SettingError("--note", f"{len(text):,} characters", f"at most {NOTE_CHARS:,}")
    notes = Notes(tags, text)
    try:
        replace_file(run / NOTES_FILE, json.dumps(asdict(notes)))
    except OSError as error:
        why = describe_write_error(error, run)
        raise SettingError(str(run / NOTES_FILE), why, "write where the run is yours") from error
    return notes
