"""Checkpoints: the newest few, whole or not at all."""

import json
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vedette_rl.errors import CheckpointError, CheckpointFormatError
from vedette_rl.storage import checkpoints
from vedette_rl.storage.checkpoints import Checkpoints, find_not_finite
from vedette_rl.storage.state_file import FORMAT, STATE_FILE, read_state, write_state
from vedette_rl.storage.unfinished import unfinished_path


def test_the_newest_few_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    assert checkpoints.latest() is None
    assert checkpoints.load_latest() is None
    for opt_steps in (5, 100, 20, 1000):
        assert checkpoints.save(opt_steps, {"n": opt_steps}, {}).name == str(opt_steps)
    assert [path.name for path in checkpoints.list()] == ["100", "1000"]
    loaded = checkpoints.load_latest()
    assert loaded is not None
    assert (loaded.path.name, loaded.state, loaded.skipped) == ("1000", {"n": 1000}, ())


def test_a_checkpoint_of_the_same_step_replaces_the_first(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(5, {"n": 1}, {"try": 1})
    checkpoints.save(5, {"n": 2}, {"try": 2})
    assert read_state(tmp_path / "5") == ({"n": 2}, {"try": 2})
    assert json.loads((tmp_path / "5" / "meta.json").read_text()) == {"try": 2}


def test_a_torn_checkpoint_is_passed_over_and_told_of(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for opt_steps in (1, 2, 3):
        checkpoints.save(opt_steps, {"x": np.arange(100.0)}, {})
    file = tmp_path / "3" / STATE_FILE
    os.truncate(file, file.stat().st_size - 50)
    (tmp_path / "2" / STATE_FILE).write_bytes(b"\x80\x04not a state at all")
    loaded = checkpoints.load_latest()
    assert loaded is not None
    assert loaded.path.name == "1"
    assert len(loaded.skipped) == 2
    assert all("torn or foreign" in told for told in loaded.skipped)
    (tmp_path / "1" / STATE_FILE).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"checkpoint .*/3/.*torn.*no other can be read"):
        checkpoints.load_latest()


def test_the_latest_is_chosen_again_where_its_run_removes_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    open_file = torch.UntypedStorage.from_file
    newer = iter((2, 3))
    state = {"x": torch.arange(3.0)}

    def open_late(*given: Any, **named: Any) -> Any:
        if steps := next(newer, None):
            checkpoints.save(steps, state, {})  # which removes the one that is read
        return open_file(*given, **named)

    checkpoints.save(1, state, {})
    monkeypatch.setattr(torch.UntypedStorage, "from_file", open_late)
    loaded = checkpoints.read("latest")
    assert loaded is not None
    assert (loaded.path.name, loaded.state["x"].tolist()) == ("3", [0.0, 1.0, 2.0])
    newer = iter((4,))
    assert checkpoints.read("3") is None
    newer = iter((5,))
    with pytest.raises(CheckpointError, match=r"cannot read checkpoint .*/4/"):
        read_state(tmp_path / "4")
    newer = iter(range(6, 1000))
    with pytest.raises(CheckpointError, match="cannot read checkpoint"):
        checkpoints.read("latest")


def test_an_unreadable_one_takes_no_place_of_a_whole_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(5500, {"n": 1}, {})
    for _ in range(2):  # it is unreadable again, after the next start
        (tmp_path / "5800").mkdir()
        (tmp_path / "5800" / STATE_FILE).write_bytes(b"torn")
        ((steps, why),) = checkpoints.unreadable_after(5500)
        assert (steps, why[:23]) == (5800, "it is torn or foreign (")
        checkpoints.put_aside_after(5500)
        assert not [*checkpoints.unreadable_after(5500)]
    checkpoints.save(5600, {"n": 2}, {})
    assert [path.name for path in checkpoints.list()] == ["5600"]
    assert (tmp_path / "5800.unreadable" / STATE_FILE).read_bytes() == b"torn"


def test_what_a_killed_writer_left_is_no_checkpoint_and_is_cleared(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    (tmp_path / ".7.98.new").mkdir()
    (tmp_path / ".7.98.new" / STATE_FILE).write_bytes(b"half")
    (tmp_path / "8").mkdir()
    assert checkpoints.latest() is None
    checkpoints.save(9, {"n": 9}, {})
    assert {path.name for path in tmp_path.iterdir()} == {"8", "9"}
    (tmp_path / "9" / ".state.safetensors.99.new").write_bytes(b"half")
    (tmp_path / ".7.99.new").mkdir()
    checkpoints.save(9, {"n": 9}, {})
    assert {path.name for path in (tmp_path / "9").iterdir()} == {STATE_FILE, "meta.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"8", "9"}


def test_a_kill_while_an_old_one_is_removed_leaves_nothing_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_after_the_state(path: Path, **_: object) -> None:
        if path.name.startswith(".1."):
            (path / STATE_FILE).unlink()
        raise KeyboardInterrupt

    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, {}, {})
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", killed_after_the_state)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(2, {}, {})
    assert [path.name for path in checkpoints.list()] == ["2"]
    checkpoints.remove_leftovers()
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


def test_what_a_killed_writer_of_our_own_number_left_is_in_nobodys_way(tmp_path: Path) -> None:
    aside = unfinished_path(tmp_path / "7")
    aside.mkdir()
    (aside / STATE_FILE).write_bytes(b"half")
    Checkpoints(tmp_path, keep=3).save(7, {"n": 7}, {})
    assert {path.name for path in tmp_path.iterdir()} == {"7"}
    assert read_state(tmp_path / "7")[0] == {"n": 7}


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_leaves_what_was_there_and_says_so_in_one_line(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(5, {"x": np.zeros(10)}, {"n": 1})
    for opt_steps in (5, 6):
        with files_up_to(20_000), pytest.raises(CheckpointError, match="File too large") as caught:
            checkpoints.save(opt_steps, {"x": np.zeros(10_000)}, {})
        assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"5"}
    assert {path.name for path in (tmp_path / "5").iterdir()} == {STATE_FILE, "meta.json"}
    assert read_state(tmp_path / "5")[1] == {"n": 1}


def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot write checkpoint .*(Not a dir|File exists)"):
        Checkpoints(tmp_path / "file" / "inside", keep=1).save(1, {}, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into read-only directories")
def test_a_read_only_directory_is_said_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CheckpointError, match="Permission denied"):
        Checkpoints(tmp_path, keep=1).save(1, {}, {})


def test_a_run_that_is_renamed_while_one_is_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next save finds that the directory is gone, and says so."""
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    kept = Checkpoints(run / "checkpoints", keep=1)

    def write(*arguments: Any) -> None:
        write_state(*arguments)
        run.rename(tmp_path / "renamed")

    monkeypatch.setattr(checkpoints, "write_state", write)
    kept.save(10, {"model": {}}, {})
    assert [path.name for path in (tmp_path / "renamed" / "checkpoints").iterdir()] == ["10"]
    assert not run.exists()


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Checkpoints(tmp_path, keep=0)


def test_what_is_not_finite_is_found_in_tensors_of_every_precision() -> None:
    whole = {
        "counts": torch.arange(3),
        "learns": torch.ones(2, requires_grad=True),
        "short": torch.ones(2, dtype=torch.bfloat16),
        "step": 3,
        "limit": float("inf"),
    }
    assert find_not_finite(whole) == ""
    for broken in (torch.tensor([1.0, torch.nan], dtype=torch.bfloat16), np.array([np.inf])):
        assert find_not_finite({**whole, "adam": {"q.bias": broken}}) == "adam/q.bias"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (FORMAT + 1, "made by a newer version of vedette"),
        (FORMAT - 1, "made by an older version of vedette"),
    ],
)
def test_no_older_checkpoint_takes_the_place_of_one_of_another_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int, said: str
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(5, {"n": 1}, {})
    with monkeypatch.context() as other_release:
        other_release.setattr("vedette_rl.storage.state_file.FORMAT", written)
        checkpoints.save(9, {"n": 2}, {})
    for read in (checkpoints.load_latest, checkpoints.newest_readable):
        with pytest.raises(CheckpointFormatError, match=f"checkpoint .*9.*: {said}"):
            read()
