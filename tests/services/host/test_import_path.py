"""Children import what their parent imports."""

import sys
from pathlib import Path

import pytest

from vedette_services.host.processes import import_path, spawn


def test_a_child_finds_the_modules_of_this_process_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("print('found')")
    (tmp_path / "random.py").write_text("raise SystemExit('not of the library')")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    log = tmp_path / "log"
    child = spawn([sys.executable, "-c", "import only_here"], log=log)
    assert child.wait(30) == 0
    assert log.read_text() == "found\n"


def test_pythons_own_folders_are_not_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sysconfig

    library = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
    monkeypatch.setattr(sys, "path", ["", *library, str(tmp_path / "missing")])
    assert import_path() == {}
