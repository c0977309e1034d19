"""Each start of a run records what it was made from."""

import json
import subprocess
import time
from pathlib import Path

import pytest
from configurations import configured

from vedette_services.errors import UnsavedEndError
from vedette_services.learner.trainer.run_recorder import open_recorder
from vedette_services.run import provenance
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import read_events
from vedette_services.run.outcome import read_summary
from vedette_services.run.overview import describe_end, read_overview
from vedette_services.run.provenance import (
    public_start,
    read_provenance,
    record_failure,
    record_provenance,
)
from vedette_services.status.status import Status

CONFIG = configured("seed=7")


def git(*arguments: str) -> str:
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    ran = subprocess.run(["git", *name, *arguments], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's project under git, as the current directory."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    (tmp_path / "env.py").write_text("reward = 1\n")
    git("add", "env.py")
    git("commit", "-qm", "begin")
    return tmp_path


def new_run(root: Path) -> RunDirectory:
    run = RunDirectory(root / "run")
    run.make()
    return run


def test_a_start_has_command_commit_versions_seeds_and_machine(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/bin/vedette", "run", "--keys", "my keys"])
    run = new_run(project)
    with record_provenance(CONFIG, run):
        (going,) = read_provenance(run)
    assert going.ended_s is None
    assert going.command == "vedette run --keys 'my keys'"
    assert going.directory == str(project)
    assert (going.commit, going.dirty) == (git("rev-parse", "HEAD"), False)
    assert {"vedette", "python", "torch", "cuda", "numpy", "gymnasium"} == set(going.versions)
    assert going.seeds == {"run": 7, "evaluation": CONFIG.evaluation.seed}
    assert going.host
    assert going.cpu
    assert min(going.cores, going.memory_bytes) > 0


def test_the_environments_packages_are_beside_ours_and_change_none(project: Path) -> None:
    plain = provenance.describe_start(CONFIG).versions
    run = new_run(project)
    with record_provenance(CONFIG, run, {"mujoco": "4.0.0", "numpy": "0.1"}):
        (going,) = read_provenance(run)
    (ended,) = read_provenance(run)
    assert ended.versions == going.versions == {**plain, "mujoco": "4.0.0"}
    assert "mujoco 4.0.0" in "\n".join(ended.lines())


def test_changes_of_tracked_files_are_noticed(project: Path) -> None:
    (project / "new.txt").write_text("untracked")
    assert not provenance.describe_start(CONFIG).dirty
    (project / "env.py").write_text("reward = 2\n")
    start = provenance.describe_start(CONFIG)
    assert start.code == f"{git('rev-parse', 'HEAD')[:9]}+"


def test_a_directory_outside_of_git_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert provenance.describe_start(CONFIG).code == ""
    monkeypatch.setenv("PATH", "")
    assert provenance.describe_start(CONFIG).commit == ""


def test_every_start_is_an_entry_with_its_end(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    with pytest.raises(ValueError, match="boom"), record_provenance(CONFIG, run):
        raise ValueError("boom")
    with record_provenance(CONFIG, run):
        summary = {"time_s": 4e9, "exit_reason": "max_opts", "managers": [{"host": "far"}]}
        run.summary_file.write_text(json.dumps(summary))
    first, second = read_provenance(run)
    assert (first.exit_reason, second.exit_reason) == ("failed", "max_opts")
    assert second.hosts == ("far",)
    assert first.ended_s is not None
    assert first.began_s <= first.ended_s <= second.began_s


def ends_with(run: RunDirectory, summary: dict[str, object], error: Exception) -> None:
    run.summary_file.write_text(json.dumps(summary))
    raise error


def test_a_start_that_failed_says_why_in_all_that_is_asked_of_it(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    ended = {"time_s": 4e9, "exit_reason": "interrupted", "env_steps": 8}
    with pytest.raises(ValueError, match="boom"), record_provenance(CONFIG, run):
        ends_with(run, ended, ValueError("boom"))
    [start] = read_provenance(run)
    assert (start.exit_reason, start.failure[:16]) == ("failed", "ValueError: boom")
    assert (read_summary(run.root).exit_reason, read_summary(run.root).env_steps) == ("failed", 8)
    assert read_overview(run.root).state == "failed"
    assert describe_end(run.root).startswith("no learner runs: it failed: ValueError: boom")
    assert "boom" not in json.dumps(public_start(start))


def test_an_end_that_is_not_saved_is_no_failure(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    ended = {"time_s": 4e9, "exit_reason": "max_opts"}
    with pytest.raises(UnsavedEndError), record_provenance(CONFIG, run):
        ends_with(run, ended, UnsavedEndError("the disk is full", Status()))
    [start] = read_provenance(run)
    assert (start.exit_reason, start.failure) == ("max_opts", "")


def test_actors_that_all_give_up_have_failed_the_run_that_their_learner_ended_well(
    tmp_path: Path,
) -> None:
    run = new_run(tmp_path)
    began = time.time()
    with record_provenance(CONFIG, run):
        summary = {"time_s": time.time(), "exit_reason": "interrupted"}
        run.summary_file.write_text(json.dumps(summary))
    record_failure(run, "too late", since=time.time() + 60.0)
    assert read_overview(run.root).state == "stopped"
    record_failure(run, "no actor can play here", since=began)
    assert read_overview(run.root).state == "failed"
    assert "it failed: no actor can play here; " in describe_end(run.root)
    assert read_summary(run.root).exit_reason == "failed"
    [event] = read_events(run.events_file)[0]
    assert (event.kind, event.text) == ("failed", "no actor can play here")


def test_an_end_is_known_though_the_clock_was_put_back(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    with record_provenance(CONFIG, run):
        run.summary_file.write_text(json.dumps({"time_s": 5.0, "exit_reason": "interrupted"}))
    with record_provenance(CONFIG, run):
        """It ends before it has written a summary: that of the start before is not its own."""
    assert [start.exit_reason for start in read_provenance(run)] == ["interrupted", "failed"]


def test_starts_of_a_crash_loop_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "STARTS_MAX", 4)
    run = new_run(tmp_path)
    for number in range(7):
        monkeypatch.setenv(provenance.COMMAND, f"start {number}")
        with record_provenance(CONFIG, run):
            pass
    kept = [start.command for start in read_provenance(run)]
    assert kept == ["start 0", "start 4", "start 5", "start 6"]


def test_a_damaged_file_or_a_full_disk_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path)
    run.provenance_file.write_text("[{]")
    with record_provenance(CONFIG, run):
        assert len(read_provenance(run)) == 1
    run.provenance_file.unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(provenance, "write_json", full)
    with record_provenance(CONFIG, run):
        assert read_provenance(run) == []


def test_a_secret_in_the_environment_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2")
    run = new_run(tmp_path)
    with record_provenance(CONFIG, run):
        assert "hunter2" not in run.provenance_file.read_text()


def test_tensorboard_has_it_as_a_text(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    with record_provenance(CONFIG, run):
        open_recorder(CONFIG, run.root).close()
    written = b"".join(path.read_bytes() for path in run.tensorboard.iterdir())
    assert b"provenance" in written
    assert b"    seeds: run 7, evaluation 10000" in written
