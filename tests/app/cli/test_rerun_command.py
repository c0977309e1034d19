"""`vedette rerun`: what it says, and its exit status."""

from __future__ import annotations

import csv
import errno
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from killed_runs import KilledRun, config_of  # of tests/support

from vedette.cli.app import main
from vedette.rerunning import Progress
from vedette_rl.storage.state_file import read_state, write_state
from vedette_services.errors import ServicesError
from vedette_services.learner import rerun
from vedette_services.learner.rerun import Rerun
from vedette_services.run.journal import StateHashes, list_parts, saved_block

Run = Callable[..., tuple[int, str]]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trained") / "run"
    KilledRun(root, config_of("dqn", steps=120), random.Random(0)).train(kills=1)
    return root


def test_equal_is_said_with_what_was_compared(vedette: Run, trained: Path) -> None:
    status, said = vedette("rerun", trained)
    assert status == 0
    assert "steps 0 to 120 in " in said
    assert "\nequal: " in said
    assert " states and 12 records of scalars" in said
    status, said = vedette("rerun", trained, "--json")
    assert status == 0
    found = json.loads(said)
    assert (found["equal"], found["first"], found["last"], found["scalars"]) == (True, 0, 120, 12)


def test_a_difference_is_said_with_its_step_and_fails(
    vedette: Run, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    with list_parts(tmp_path / "run" / "journal")[-1].open("ab") as part:  # a later block counts
        part.write(saved_block(120, StateHashes(bytes(16), bytes(16))))
    status, said = vedette("rerun", "run")
    assert status == 1
    assert "different: the agent, at step 120\n" in said
    assert "the last equal state is that of step " in said
    status, said = vedette("rerun", "run", "--json")
    assert json.loads(said)["difference"]["step"] == 120


def test_the_span_is_said(vedette: Run, trained: Path) -> None:
    status, said = vedette("rerun", trained, "--span")
    assert status == 0
    assert said.startswith("steps 0 to 120 can be executed again\nfrom the states of the steps 0")
    status, said = vedette("rerun", trained, "--span", "--json")
    found = json.loads(said)
    assert (found["first"], found["last"], found["why_not_earlier"]) == (0, 120, "")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--from", "500"], "steps 500 to 120 are not within the span, 0 to 120"),
        (["--until", "500"], "steps 0 to 500 are not within the span, 0 to 120"),
        (["--batch", "b.npz"], "--batch goes with --bisect"),
        (["--curves", "c.csv"], "--curves goes with --with"),
        (["--bisect", "nan", "--with", "agent.learning_rate=1"], "--bisect goes with no --with"),
        (["--bisect", "loss"], "--bisect loss: write nan, or a scalar with a limit"),
        (["--with", "env.id=X"], "--with env.id: the rows were made, and came to be drawn, by it"),
        (["--bisect", "loss == nan"], "--bisect loss == nan: write nan, or a scalar with a limit"),
        (["--with", "agent.n_step=2"], "--with agent.n_step: the rows were made, and came to be"),
        (["--with", "replay.sequence=4"], "--with replay.sequence: the rows were made, and came"),
        (["--with", "agent.learning_rat=1"], "did you mean agent.learning_rate?"),
        (["--with", "agnt.learning_rate=1"], "agnt"),
        (["--with", "agent.learning_rate"], "--with agent.learning_rate: write KEY=VALUE"),
        (["--with", "agent.learning_rate=x"], "--with agent.learning_rate: must be a number, not"),
        (["--with", "env.kwargs.x=None"], "--with env.kwargs.x: None is no value that TOML has"),
        (["--with", "agent.hidden_sizes=[8]"], "--with agent.hidden_sizes: the saved states have"),
        (["--with", "agent.double=true"], "--with agent.double=true: the run has it so"),
        (["--bisect", "nan", "--batch", "no/b.npz"], "--batch no/b.npz: there is no folder no"),
        (["--with", "seed=1", "--curves", "no/c.csv"], "--curves no/c.csv: there is no folder no"),
        (["--epoch", "9"], "epoch 9 has no part of the journal; there are those of "),
    ],
)
def test_what_cannot_be_asked_is_refused(
    vedette: Run, trained: Path, asked: list[str], said: str
) -> None:
    status, line = vedette("rerun", trained, *asked)
    assert status == 2
    assert said in line
    assert line.count("\n") == 1


def test_no_run_is_refused(vedette: Run, tmp_path: Path) -> None:
    status, said = vedette("rerun", tmp_path)
    assert status == 2
    assert "run.json" in said


def test_the_first_step_beyond_a_limit_is_said_with_its_rows(
    vedette: Run, trained: Path, tmp_path: Path
) -> None:
    status, said = vedette("rerun", trained, "--bisect", "loss > 0", "--batch", "batch.npz")
    assert status == 0
    assert said.startswith("step 1: loss is ")
    assert "actors" in said
    assert "the batch in batch.npz" in said
    with np.load(tmp_path / "batch.npz") as batch:
        assert len(batch["indices"]) == len(batch["obs"]) == 16
    status, said = vedette("rerun", trained, "--bisect", "loss > 1e9")
    assert (status, said) == (1, "no step from 1 to 120 has loss > 1e9\n")
    status, said = vedette("rerun", trained, "--bisect", "loss > 0", "--from", "100", "--json")
    found = json.loads(said)
    assert found["step"] > 1
    assert {"number", "manager", "actor", "version", "age"} <= found["rows"][0].keys()


def test_a_batch_that_cannot_be_written_leaves_no_half(
    vedette: Run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_some(file: BinaryIO, **arrays: object) -> None:
        file.write(b"some")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", write_some)
    (tmp_path / "batch.npz").write_bytes(b"of an earlier search")
    status, said = vedette("rerun", trained, "--bisect", "loss > 0", "--batch", "batch.npz")
    assert status == 2
    assert said.startswith("step 1: loss is "), "what was found is said first"
    assert "batch.npz: No space left on device" in said
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"of an earlier search"]


def test_another_setting_is_executed_on_the_same_data_beside_the_old_one(
    vedette: Run, trained: Path, tmp_path: Path
) -> None:
    status, said = vedette(
        "rerun", trained, "--with", "agent.learning_rate=0.1", "--curves", "curves.csv"
    )
    assert status == 0
    assert "with agent.learning_rate=0.1" in said
    with (tmp_path / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, 121))
    first, last = rows[0], rows[-1]
    assert first["loss"] == first["loss changed"], "the first batch is the same"
    assert last["loss"] != last["loss changed"]
    # the same setting as then changes nothing
    vedette("rerun", trained, "--with", "agent.learning_rate=0.1", "--curves", "again.csv")
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "curves.csv").read_text()


def test_a_setting_without_effect_is_said(vedette: Run, trained: Path) -> None:
    asked = ("rerun", trained, "--from", "100", "--with", "learner.sync_interval=7")
    status, said = vedette(*asked)
    assert status == 0
    line = "no recorded scalar differs: the change may have no effect on the learner\n"
    assert said.endswith(line)
    assert json.loads(vedette(*asked, "--json")[1])["scalars_differ"] is False
    asked = ("rerun", trained, "--from", "100", "--with", "agent.learning_rate=0.1")
    assert line not in vedette(*asked)[1]
    assert json.loads(vedette(*asked, "--json")[1])["scalars_differ"] is True


def test_files_are_compared_once_for_two_curves(
    vedette: Run, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[object] = []
    check = rerun.check_checkpoints
    monkeypatch.setattr(
        rerun, "check_checkpoints", lambda *given: compared.append(given) or check(*given)
    )
    assert vedette("rerun", trained, "--with", "agent.learning_rate=0.1")[0] == 0
    assert len(compared) == 1


def test_with_json_nothing_else_is_on_stdout(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for status, asked in (
        (0, []),
        (0, ["--span"]),
        (1, ["--bisect", "loss > 1e9"]),
        (0, ["--bisect", "loss > 0", "--batch", "batch.npz"]),
        (0, ["--with", "agent.learning_rate=0.1", "--curves", "curves.csv"]),
        (2, ["--from", "500"]),
        (2, ["--with", "agent.hidden_sizes=[8]"]),
        (2, ["--epoch", "9"]),
    ):
        with pytest.raises(SystemExit) as left:
            main(["rerun", str(trained), "--json", *asked])
        said = capsys.readouterr()
        assert left.value.code == status
        if status == 2:
            assert said.out == ""
            assert said.err.startswith("vedette: ")
        else:
            assert said.err == ""
            json.loads(said.out)


def test_no_answer_rests_on_a_begin_that_was_changed(
    vedette: Run, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    step = min(int(path.name) for path in (tmp_path / "run" / "checkpoints").iterdir())
    place = tmp_path / "run" / "checkpoints" / str(step)
    state, meta = read_state(place)
    next(iter(state["agent"]["online"].values())).view(-1)[0] += 1
    write_state(place, state, meta)
    line = f"different: the checkpoint of step {step} is not the state that was saved"
    for asked in (["--bisect", "nan"], ["--with", "agent.learning_rate=0.1"]):
        status, said = vedette("rerun", "run", "--from", step, *asked)
        assert status == 1
        assert line in said
        assert "no step from" not in said
    status, said = vedette("rerun", "run", "--bisect", "nan", "--from", step, "--json")
    assert line in json.loads(said)["different"]
    # another file says nothing of what was asked, and is named all the same
    status, said = vedette("rerun", "run", "--with", "agent.learning_rate=0.1")
    assert status == 0
    assert f"checkpoints/{step}: it is not the state that was saved\ncopy the run again" in said


def test_a_difference_alone_has_its_exit_status(
    vedette: Run, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, said in (
        (MemoryError("no memory"), "VEDETTE_TRACEBACK=1 shows where"),
        (ServicesError("a port is taken"), "vedette: a port is taken"),
    ):

        def fail(rerun: Rerun, *given: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(Rerun, "execute", fail)
        status, line = vedette("rerun", trained)
        assert status == 2
        assert said in line


def test_a_place_that_cannot_be_written_is_refused_before_an_execution(
    vedette: Run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Rerun, "execute", None)
    (tmp_path / "folder").mkdir()
    status, said = vedette("verify", trained, "--out", "folder")
    assert (status, "folder: it is a folder, and a file is written" in said) == (2, True)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    for asked in (
        ("verify", trained, "--out", "c.json"),
        ("rerun", trained, "--bisect", "nan", "--batch", "c.json"),
    ):
        status, said = vedette(*asked)
        assert status == 2
        assert "c.json: it cannot be written: Read-only file system" in said


def test_a_long_execution_says_how_far_it_is() -> None:
    said: list[str] = []
    now = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    progress = Progress(9000, said.append, lambda: next(now))
    assert [progress.ends(step) for step in (10, 2000, 2500, 4000)] == [False] * 4
    assert said == ["step 2,000 of 9,000", "step 4,000 of 9,000"]
