"""No output of a command takes the place of a file that a run or a sweep keeps."""

from collections.abc import Callable
from pathlib import Path

import pytest
from run_folders import make_run  # of tests/support

from vedette_services.errors import SettingError
from vedette_services.run.checks import check_writable

Run = Callable[..., tuple[int, str]]

OUTPUTS = {
    "export": ("export", "run", "--format", "numpy", "--out"),
    "export of a replay": ("export", "run", "--what", "replay", "--format", "npz", "--out"),
    "report": ("report", "run", "--out"),
    "numbers": ("report", "run", "--csv"),
    "verify": ("verify", "run", "--out"),
    "batch": ("rerun", "run", "--bisect", "nan", "--batch"),
    "curves": ("rerun", "run", "--with", "agent.gamma=0.9", "--curves"),
    "video": ("eval", "run", "--video"),
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize(
    "place", ["config.toml", "summary.json", "run.json", "tensorboard/x.csv", "best", "log/a.log"]
)
def test_no_output_takes_the_place_of_a_runs_file(
    vedette: Run, tmp_path: Path, name: str, place: str
) -> None:
    run = make_run(tmp_path / "run")
    (run / "log").mkdir()
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    status, said = vedette(*OUTPUTS[name], run / place)
    option = OUTPUTS[name][-1]
    why = f"the run {run} keeps files of its own there; name another place"
    assert (status, said) == (2, f"vedette: {option} {run / place}: {why}\n")
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    "files",
    [
        {"config.toml": "", "checkpoints/mine.pt": "", "best/mine.pt": ""},
        {"summary.json": '{"mine": 1}', "events.jsonl": "{}", "run.json": '{"run_id": "mine"}'},
        {"summary.json": "[]", "run.json": "torn {"},
    ],
)
def test_a_folder_of_other_programs_with_such_names_takes_outputs(
    vedette: Run, tmp_path: Path, files: dict[str, str]
) -> None:
    run = make_run(tmp_path / "run")
    project = tmp_path / "project"
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    for place in ("records.csv", "best/numbers.csv", "log/2026/numbers.csv"):
        (project / place).parent.mkdir(parents=True, exist_ok=True)
        assert vedette("report", run, "--csv", project / place)[0] == 0
        assert (project / place).exists()
    check_writable(project / "checkpoints" / "run1")
    with pytest.raises(SettingError, match="keeps files of its own"):
        check_writable(run / "checkpoints" / "run1")


def test_links_and_relative_places_of_a_runs_file_are_known(vedette: Run, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (tmp_path / "disk").mkdir()
    (run / "best").symlink_to(tmp_path / "disk")
    (tmp_path / "link.csv").symlink_to(run / "events.jsonl")
    for place in ("run/best/a.csv", "link.csv", "disk/../run/config.toml"):
        status, said = vedette("report", "run", "--csv", place)
        assert (status, f"the run {run} keeps" in said) == (2, True), said


def test_new_folders_are_not_made_among_a_runs_files(vedette: Run, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    place = run / "tensorboard" / "demos"
    for command in (
        ("export", "run", "--what", "replay", "--format", "minari", "--out", place),
        ("collect", "--env", "CartPole-v1", "--policy", "math:fsum", "--out", place),
        ("push", "run", "me/run", "--out", place),
        ("run", "--out", place),
        ("run", "--seeds", 2, "--out", place),
        ("keys", "new", place),
        ("keys", "new", place, "--keep"),
        ("actors", "--learner", "127.0.0.1:1", "--insecure", "--outbox", place),
    ):
        status, said = vedette(*command)
        assert (status, f"the run {run} keeps files of its own there" in said) == (2, True), said
    assert not place.exists()


def test_a_command_writes_its_own_file_of_a_run_and_new_ones_beside_it(
    vedette: Run, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run")
    assert vedette("report", "run", "--out", run / "report.html")[0] == 0
    assert vedette("report", "run", "--csv", run / "numbers.csv")[0] == 0
    other = make_run(tmp_path / "other") / "certificate.json"
    status, said = vedette("verify", "run", "--out", other)
    assert (status, f"the run {other.parent} keeps" in said) == (2, True), said
    status, said = vedette("verify", "run", "--out", run / "certificate.json")
    lacks = "vedette: run: not a run's directory: it has no run.json\n"  # behind the check
    assert (status, said) == (2, lacks)


@pytest.mark.parametrize("place", ["best.toml", "study.journal", "sweep/seed-1.log"])
def test_no_output_takes_the_place_of_a_sweeps_file(
    vedette: Run, tmp_path: Path, place: str
) -> None:
    make_run(tmp_path / "sweep-1" / "trial-0000")
    (tmp_path / "sweep-1" / "study.journal").write_text("")
    (tmp_path / "sweep-1" / "sweep").mkdir()
    status, said = vedette("report", "sweep-1", "--csv", tmp_path / "sweep-1" / place)
    assert (status, f"the sweep {tmp_path / 'sweep-1'} keeps files" in said) == (2, True), said


@pytest.mark.parametrize("option", ["--out", "--csv"])
def test_no_output_takes_the_place_of_a_table_that_is_read(
    vedette: Run, tmp_path: Path, option: str
) -> None:
    table = tmp_path / "other.csv"
    text = "label,seed,env_steps,opt_steps,wall_s,return_mean\nsb3,1,100,1,1.0,5.0\n"
    table.write_text(text)
    status, said = vedette("report", "other.csv", option, table)
    why = "it is one of the tables to read; name another file"
    assert (status, said, table.read_text()) == (2, f"vedette: {option} {table}: {why}\n", text)
