"""The doctor looks at a folder for runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_directories import new_run

from vedette import doctor
from vedette.cli.app import main
from vedette_services.run.claim import Owner
from vedette_services.run.directory import RunDirectory


def said(out: Path) -> list[str]:
    return [str(finding) for finding in doctor.examine_directory(out)]


def test_a_folder_with_locks_is_good_and_left_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--out", str(tmp_path)])
    assert left.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=2) == ["ok", "directory", f"{tmp_path} can be written"]
    assert lines[1].split(maxsplit=2)[2] == "one process of this host has it at a time"
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    assert said(tmp_path / "none")[0].endswith("is no folder; make it, or name one that is there")


def test_what_is_wrong_with_locks_is_told_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner("00", "gpu-1", 12)
    new_run(tmp_path / "run")
    monkeypatch.setattr(RunDirectory, "unseen_owner", lambda run, timeout_s: owner)
    monkeypatch.setattr(doctor, "describe_local_locks", lambda out: "NFS is mounted with nolock")
    *_, mounted, unseen = said(tmp_path / "run")
    fix = "; mount it with locks that all hosts share"
    assert mounted.endswith(f"other hosts do not see them: NFS is mounted with nolock{fix}")
    assert unseen.startswith("fail")
    assert f"process 12 on gpu-1 has this run, and its lock is not seen here{fix}" in unseen
    monkeypatch.setattr(doctor, "lock_file", lambda file: False)
    assert "the file system has none: a second learner waits" in said(tmp_path)[1]
    monkeypatch.setattr(doctor, "lock_file", lambda file: True)
    assert "two processes of this host have one at once" in said(tmp_path)[1]
