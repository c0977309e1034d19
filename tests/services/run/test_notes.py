"""Tags and notes of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vedette_services.errors import SettingError
from vedette_services.run.notes import NOTES_FILE, Notes, read_notes, write_notes
from vedette_services.run.overview import read_overview


def test_tags_and_a_note_are_saved_with_the_run(tmp_path: Path) -> None:
    assert read_notes(tmp_path) == Notes()
    write_notes(tmp_path, add=["baseline", "gpu"], note="before the new reward")
    write_notes(tmp_path, add=["baseline", "paper"], remove=["gpu"])
    assert read_notes(tmp_path) == Notes(("baseline", "paper"), "before the new reward")
    write_notes(tmp_path, note="")
    assert read_notes(tmp_path) == Notes(("baseline", "paper"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"tags": ["a"],}', "is no JSON: "),
        ("", "is no JSON: "),
        ("[]", "is damaged: it has no table"),
        ('{"tags": 7}', "is damaged: tags is no list of texts"),
        ('{"tags": [true]}', "is damaged: tags is no list of texts"),
        ('{"tags": [["a"]]}', "is damaged: tags is no list of texts"),
        ('{"note": null}', "is damaged: note is no text"),
        ('{"note": ' + "[" * 9999, "is nested too deeply"),
    ],
)
def test_a_damaged_file_is_named_and_never_replaced(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / NOTES_FILE
    file.write_text(text)
    assert read_notes(tmp_path).damage.startswith(f"notes.json {why}")
    assert read_notes(tmp_path).tags == ()
    with pytest.raises(SettingError) as refused:
        write_notes(tmp_path, add=["gpu"])
    assert str(refused.value).startswith(f"{file}: {why}")
    assert "it was not changed" in str(refused.value)
    assert file.read_text() == text


def test_numbers_in_a_file_written_by_hand_are_texts(tmp_path: Path) -> None:
    (tmp_path / NOTES_FILE).write_text('{"tags": [1, "a", 2.5], "note": 5}')
    assert read_notes(tmp_path) == Notes(("1", "a", "2.5"), "5")
    assert write_notes(tmp_path, add=["1", "b"], remove=["2.5"]) == Notes(("1", "a", "b"), "5")
    assert read_notes(tmp_path) == Notes(("1", "a", "b"), "5")


def test_a_listing_shows_that_the_notes_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / NOTES_FILE).write_text("[")
    assert read_overview(tmp_path).note.startswith("notes.json is no JSON")


def test_what_was_written_by_hand_is_neither_cut_nor_dropped(tmp_path: Path) -> None:
    long = "x" * 3000
    (tmp_path / NOTES_FILE).write_text(json.dumps({"tags": ["a" * 60], "owner": long}))
    write_notes(tmp_path, add=["b"], note="short")
    assert json.loads((tmp_path / NOTES_FILE).read_text()) == {
        "tags": ["a" * 60, "b"],
        "note": "short",
        "owner": long,
    }


def test_what_somebody_else_has_written_is_short_and_printable(tmp_path: Path) -> None:
    (tmp_path / NOTES_FILE).write_text('{"tags": ["\\u202ea", "b"], "note": "c\\u001b[31m"}')
    found = read_notes(tmp_path)
    assert all(text.isprintable() for text in (*found.tags, found.note))


@pytest.mark.parametrize("tag", ["", " ", "x" * 41, "a\nb"])
def test_a_tag_that_is_no_word_is_refused(tmp_path: Path, tag: str) -> None:
    with pytest.raises(SettingError, match="--tag"):
        write_notes(tmp_path, add=[tag])
