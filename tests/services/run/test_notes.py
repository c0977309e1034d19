"""Tags and notes of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette_services.errors import SettingError
from vedette_services.run.notes import NOTES_FILE, Notes, read_notes, write_notes


def test_tags_and_a_note_are_saved_with_the_run(tmp_path: Path) -> None:
    assert read_notes(tmp_path) == Notes()
    write_notes(tmp_path, add=["baseline", "gpu"], note="before the new reward")
    write_notes(tmp_path, add=["baseline", "paper"], remove=["gpu"])
    assert read_notes(tmp_path) == Notes(("baseline", "paper"), "before the new reward")
    write_notes(tmp_path, note="")
    assert read_notes(tmp_path) == Notes(("baseline", "paper"))


@pytest.mark.parametrize("text", ["[", "[]", "7", '{"tags": 7}', '{"note": ' + "[" * 9999])
def test_a_damaged_file_has_none(tmp_path: Path, text: str) -> None:
    (tmp_path / NOTES_FILE).write_text(text)
    assert read_notes(tmp_path) == Notes()


def test_what_somebody_else_has_written_is_short_and_printable(tmp_path: Path) -> None:
    (tmp_path / NOTES_FILE).write_text('{"tags": ["\\u202ea", "b"], "note": "c\\u001b[31m"}')
    found = read_notes(tmp_path)
    assert all(text.isprintable() for text in (*found.tags, found.note))


@pytest.mark.parametrize("tag", ["", " ", "x" * 41, "a\nb"])
def test_a_tag_that_is_no_word_is_refused(tmp_path: Path, tag: str) -> None:
    with pytest.raises(SettingError, match="--tag"):
        write_notes(tmp_path, add=[tag])
