"""Folders in which only modules that a configuration names are looked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vedette_rl.import_by_name import import_by_name
from vedette_rl.module_search import add_search_folder, find_named_module, search_folders


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two modules, of which one imports the other when it is called."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "searched_one.py").write_text(
        "def call():\n    import searched_two\n    return 2\n"
    )
    (tmp_path / "searched_two.py").write_text("")
    (tmp_path / "json.py").write_text("raise AssertionError\n")
    add_search_folder(str(tmp_path))
    yield tmp_path
    for name in ("searched_one", "searched_two"):
        sys.modules.pop(name, None)


def test_only_what_is_named_is_found_there_and_then_what_it_imports(here: Path) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("searched_two")
    found = find_named_module("searched_one")
    assert found is not None
    assert found.origin == str(here / "searched_one.py")
    assert str(here) not in sys.path
    assert import_by_name("agent.network", "searched_one:call")() == 2
    assert sys.path[-1] == str(here)


def test_it_stands_behind_all_that_is_installed(here: Path) -> None:
    found = find_named_module("json")
    assert found is not None
    assert found.origin is not None
    assert not found.origin.startswith(str(here))
    assert import_by_name("agent.network", "json:loads")("1") == 1
    assert str(here) not in sys.path


def test_a_folder_of_pythons_path_is_not_added_again(here: Path) -> None:
    add_search_folder(str(here))
    add_search_folder(sys.path[-1])
    assert search_folders() == (str(here),)
    assert find_named_module("no_such_module_at_all") is None
