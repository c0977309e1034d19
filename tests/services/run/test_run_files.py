"""Files that a run writes are known from those of others."""

from pathlib import Path

import pytest

from vedette_services.run.run_files import FOLDERS, erase_written, foreign_files


def test_a_journal_is_erased_with_its_run_and_nothing_else_is(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    place.mkdir()
    assert "journal" in FOLDERS
    written = ["1-0", "12-3400", f"{'0a' * 16}.toml", f".{'0a' * 16}.toml.77.new"]
    for name in [*written, "notes.toml", "1-0.bak"]:
        (place / name).touch()
    assert sorted(file.name for file in foreign_files(place)) == ["1-0.bak", "notes.toml"]
    erase_written(place)
    assert sorted(file.name for file in place.iterdir()) == ["1-0.bak", "notes.toml"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_with_a_file_of_others_stays(folder: str, tmp_path: Path) -> None:
    place = tmp_path / folder
    place.mkdir()
    (place / "mine").touch()
    erase_written(place)
    assert [file.name for file in place.iterdir()] == ["mine"]
