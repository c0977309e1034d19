"""Children import what their parent imports."""

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from vedette_rl.module_search import add_search_folder
from vedette_services.host.processes import import_path, spawn

CHILD = """
from vedette_services.host.processes import die_with_parent
die_with_parent()
import only_here, colorsys
"""

NAMING_CHILD = """
from vedette_services.host.processes import die_with_parent
die_with_parent()
from importlib.util import find_spec
assert find_spec("only_here") is None
from vedette_rl.import_by_name import import_named_module
import_named_module("only_here")
import colorsys
"""


def folder_with_modules(tmp_path: Path) -> str:
    """A folder with a module of its own, and one of the name of Python's."""
    (tmp_path / "only_here.py").write_text("print('found')")
    (tmp_path / "colorsys.py").write_text("print('not of the library')")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("is_first", "said"), [(True, "found\nnot of the library\n"), (False, "found\n")]
)
def test_a_child_finds_modules_in_the_order_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool, said: str
) -> None:
    folder = folder_with_modules(tmp_path)
    monkeypatch.setattr(sys, "path", [folder, *sys.path] if is_first else [*sys.path, folder])
    log = tmp_path / "log"
    child = spawn([sys.executable, "-c", CHILD], log=log)
    assert child.wait(30) == 0, log.read_text()
    assert log.read_text() == said


def test_only_what_stands_before_the_library_stands_before_it_in_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = sysconfig.get_path("stdlib")
    script = tmp_path / "script"
    editable = tmp_path / "root"
    script.mkdir()
    editable.mkdir()
    monkeypatch.setattr(sys, "path", [str(script), library, str(editable)])
    found = import_path()
    assert found["PYTHONPATH"].split(os.pathsep) == [str(script)]


def test_pythons_own_folders_are_not_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
    monkeypatch.setattr(sys, "path", [*library, str(tmp_path / "missing")])
    assert import_path() == {}


def test_the_current_folder_of_an_interactive_session_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", sysconfig.get_path("stdlib")])
    assert import_path() == {"PYTHONPATH": str(tmp_path)}


def test_a_child_finds_named_modules_where_this_process_looks_for_them(tmp_path: Path) -> None:
    add_search_folder(folder_with_modules(tmp_path))
    log = tmp_path / "log"
    child = spawn([sys.executable, "-P", "-c", NAMING_CHILD], log=log)
    assert child.wait(30) == 0, log.read_text()
    assert log.read_text() == "found\n"
