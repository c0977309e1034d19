"""`vedette runs`, `vedette status RUN` and `vedette stop RUN`: a run is found by its directory."""

import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from child_process import child_process  # of tests/support
from configurations import configured
from run_directories import new_run

from vedette.cli.status import _watch
from vedette.live import View
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.errors import RunInUseError, SettingError
from vedette_services.net.addresses import Address
from vedette_services.run import directory
from vedette_services.run.claim import ClaimRecord, Owner
from vedette_services.run.directory import RunDirectory
from vedette_services.run.finding import find_runs
from vedette_services.run.learner_location import LearnerLocation, publish_location
from vedette_services.run.overview import RunStatus
from vedette_services.run.provenance import Start

Run = Callable[..., tuple[int, str]]

HOLDER = """
import signal, sys
from pathlib import Path
from vedette_services.run.directory import RunDirectory
run = RunDirectory(Path(sys.argv[1]))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
run.lock()
print("locked", flush=True)
signal.sigwait({signal.SIGTERM})  # `pause` may miss one
"""


def make_run(root: Path, began_s: float = 0.0, **summary: Any) -> RunDirectory:
    run = new_run(root, configured())
    start = Start(began_s, began_s + 65.0, commit="abcdef0123456789", dirty=True)
    starts = [{name: getattr(start, name) for name in ("began_s", "ended_s", "commit", "dirty")}]
    run.provenance_file.write_text(json.dumps(starts))
    if summary:
        run.summary_file.write_text(json.dumps({"time_s": began_s, **summary}))
    return run


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[tuple[RunDirectory, "subprocess.Popen[str]"]]:
    """A run whose lock another process holds, which ends at a SIGTERM."""
    run = make_run(tmp_path / "locked", opt_steps=7, env_steps=900)
    command = [sys.executable, "-c", HOLDER, str(run.root)]
    with child_process(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield run, process


def test_a_last_evaluation_by_luck_is_marked_and_the_mark_is_explained(
    vedette: Run, tmp_path: Path
) -> None:
    lucky = {"return_mean": 478.5, "fresh_return_mean": 470.2, "best_return_mean": 470.2}
    stop = {"target_return": 475.0}
    make_run(tmp_path / "runs/a", 100.0, exit_reason="max_opts", eval=lucky, stop=stop)
    make_run(tmp_path / "runs/b", 200.0, exit_reason="max_opts", eval={"return_mean": 9.0})
    _, text = vedette("runs")
    _, first, second, note = text.splitlines()
    assert " 478.5* " in first
    assert "*" not in second
    assert note.startswith("* at the target, but fresh episodes of the same model were below it")


def test_a_last_evaluation_that_fresh_episodes_confirmed_is_not_marked(
    vedette: Run, tmp_path: Path
) -> None:
    stop = {"target_return": 475.0}
    solved = {"return_mean": 500.0, "fresh_return_mean": 486.3, "best_return_mean": 486.3}
    make_run(tmp_path / "runs/a", 100.0, exit_reason="target_return", eval=solved, stop=stop)
    cut_off = {"return_mean": 495.5, "best_return_mean": 319.5}
    make_run(tmp_path / "runs/b", 200.0, exit_reason="max_env_steps", eval=cut_off, stop=stop)
    _, text = vedette("runs")
    assert "*" not in text


def test_runs_are_listed_with_state_result_and_commit(vedette: Run, tmp_path: Path) -> None:
    evaluations = {"return_mean": 470.25, "best_return_mean": 500.0, "reached_episodes": 100}
    make_run(tmp_path / "runs/b", 200.0, exit_reason="target_return", eval=evaluations)
    make_run(tmp_path / "runs/sweep/lr=1/seed-0", 100.0, exit_reason="interrupted", env_steps=4224)
    make_run(tmp_path / "runs/c", 300.0, opt_steps=3)
    make_run(tmp_path / "runs/d", 400.0)
    status, text = vedette("runs")
    assert status == 0
    heads, *lines = (line.split() for line in text.splitlines())
    assert heads[:3] == ["state", "agent", "environment"]
    assert [(line[0], line[-1]) for line in lines] == [
        ("stopped", "runs/sweep/lr=1/seed-0"),
        ("solved", "runs/b"),
        ("killed", "runs/c"),
        ("new", "runs/d"),
    ]
    assert lines[0][1:7] == ["dqn", "CartPole-v1", "-", "-", "4,224", "0:01:05"]
    assert lines[1][3:5] == ["470.2", "500.0"]
    assert lines[1][-2] == "abcdef012+"


@pytest.mark.parametrize("command", ["status", "stop"])
def test_a_folder_of_seeds_is_answered_with_one_of_its_runs(
    vedette: Run, tmp_path: Path, command: str
) -> None:
    for seed in range(5):
        make_run(tmp_path / f"five/seed-{seed}")
    status, text = vedette(command, tmp_path / "five")
    assert status == 2
    assert f"name one of its 5 runs, such as {tmp_path / 'five/seed-0'}" in text


@pytest.mark.usefixtures("probed_here")
def test_a_learner_whose_target_is_reached_says_so(
    vedette: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vedette_services.learner.supervisor.run_learner", lambda *_, **__: 0)
    said = "already done: its evaluations reached 480 of 475; raise stop.target_return to go on"
    monkeypatch.setattr("vedette_services.run.outcome.describe_already_done", lambda *_, **__: said)
    status, text = vedette("learner", "--env", "CartPole-v1", "--out", tmp_path / "one")
    assert status == 0
    assert said in text.splitlines()


@pytest.mark.usefixtures("probed_here")
def test_a_run_that_is_over_says_which_settings_it_does_not_take(
    vedette: Run, tmp_path: Path
) -> None:
    run = new_run(tmp_path / "one", configured("stop.max_opts=5", env="CartPole-v1"))
    summary = {"exit_reason": "max_opts", "opt_steps": 5, "env_steps": 9}
    (run.root / "summary.json").write_text(json.dumps(summary))
    Checkpoints(run.checkpoints, keep=1).save(5, {"agent": {"opt_steps": 5}}, {})
    command = ("run", "--out", tmp_path / "one")
    _, text = vedette(*command)
    assert "already done: it has 5 of 5 optimization steps" in text
    assert "not applied" not in text
    _, text = vedette(*command, "agent.learning_rate=0.5", "stop.max_opts=4")
    assert "already done: it has 5 of 4 optimization steps" in text
    said = "not applied, because the run is over: agent.learning_rate: 0.004 -> 0.5"
    assert said in text.splitlines()


def test_runs_as_json(vedette: Run, tmp_path: Path) -> None:
    make_run(tmp_path / "one", 200.0, exit_reason="max_opts", env_steps=10)
    _, text = vedette("runs", tmp_path, "--json")
    (found,) = map(json.loads, text.splitlines())
    assert (found["state"], found["env_steps"], found["seconds"]) == ("done", 10, 65.0)


def test_a_run_with_a_damaged_configuration_is_listed(vedette: Run, tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", 200.0)
    run.config_file.write_text('agent = "dqn"\n')
    status, text = vedette("runs", tmp_path, "--json")
    assert (status, json.loads(text)["agent"]) == (0, "")


DEEP = "[" * 100_000


def test_a_run_of_broken_files_hides_no_other_run(vedette: Run, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        make_run(tmp_path / name, 200.0, exit_reason="max_opts")
    deep, folder = RunDirectory(tmp_path / "a"), RunDirectory(tmp_path / "b")
    for file in (deep.root / "run.json", deep.provenance_file, deep.events_file):
        file.write_text(DEEP)
    deep.config_file.write_text(f"x = {DEEP}")
    folder.events_file.mkdir()
    status, text = vedette("runs", tmp_path, "--json")
    assert (status, [json.loads(line)["state"] for line in text.splitlines()]) == (0, 3 * ["done"])


def test_a_file_of_a_run_that_is_nested_too_deep_is_named(vedette: Run, tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    (run.root / "run.json").write_text(DEEP)
    with pytest.raises(SettingError, match=rf"{run.root}/run.json: cannot be read: "):
        run.identity()
    run.config_file.write_text(f"x = {DEEP}")
    status, text = vedette("eval", run.root)
    assert status == 2
    assert text.startswith(f"vedette: {run.config_file}: not TOML: ")


def test_a_directory_without_runs_is_said(vedette: Run, tmp_path: Path) -> None:
    assert vedette("runs", tmp_path) == (0, f"no run in {tmp_path}\n")
    status, text = vedette("runs", "nowhere")
    assert (status, text) == (2, "vedette: nowhere: there is no such folder\n")


def test_runs_below_a_run_are_found_and_nothing_in_its_own_folders(tmp_path: Path) -> None:
    outer = make_run(tmp_path / "a")
    inner = make_run(outer.root / "seed-1")
    make_run(outer.checkpoints / "copied")
    assert find_runs(tmp_path) == [outer.root, inner.root]
    assert find_runs(outer.root) == [outer.root, inner.root]
    assert find_runs(tmp_path, folders_max=2) == [outer.root]


def test_runs_are_found_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = ["seed-10", "seed-2", "other", "sweep/rate=0.01/seed-1", "sweep/rate=0.001/seed-11"]
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").touch()
    (tmp_path / "sweep/rate=0.01/deeper/than/three").mkdir(parents=True)
    (tmp_path / "sweep/rate=0.01/deeper/than/three/run.json").touch()
    (tmp_path / "config.toml").touch()  # of a project, not of a run
    found = [run.relative_to(tmp_path).as_posix() for run in find_runs(tmp_path)]
    assert found == [names[2], names[1], names[0], names[4], names[3]]


def test_a_run_of_a_held_lock_runs_and_is_stopped_gracefully(
    vedette: Run, locked: tuple[RunDirectory, "subprocess.Popen[str]"]
) -> None:
    run, process = locked
    assert vedette("runs", run.root)[1].splitlines()[1].startswith("running")
    status, text = vedette("stop", run.root)
    assert status == 1, "it has saved no end"
    assert process.wait(10) == 0
    assert text.startswith(f"{run.root}: no learner runs")
    assert vedette("stop", run.root)[1].startswith(f"{run.root}: nothing to stop: ")


def test_a_stop_says_that_the_learner_has_ended_and_no_more(
    vedette: Run, locked: tuple[RunDirectory, "subprocess.Popen[str]"]
) -> None:
    run, process = locked  # `vedette run` and its actors may end after their learner
    run.summary_file.write_text(json.dumps({"exit_reason": "interrupted"}))
    stopped = "stopped on request; the same command with this --out resumes it"
    assert vedette("stop", run.root) == (0, f"{run.root}: the learner has ended: {stopped}\n")
    assert process.wait(10) == 0


def test_a_run_whose_lock_is_another_users_is_running(
    vedette: Run, locked: tuple[RunDirectory, "subprocess.Popen[str]"]
) -> None:
    run, process = locked
    (run.root / "lock").unlink()
    (run.root / "lock").mkdir()  # whoever may run this test cannot open it
    listed = json.loads(vedette("runs", run.root, "--json")[1])
    assert listed["state"] == "running"
    said = f"vedette: {run.root}: process {process.pid} is another user's\n"
    assert vedette("stop", run.root) == (2, said)
    with pytest.raises(RunInUseError, match=f"process {process.pid}"), run.hold_free():
        pass


def test_a_run_on_a_file_system_without_locks_is_not_taken_for_another_users(
    vedette: Run,
    locked: tuple[RunDirectory, "subprocess.Popen[str]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, process = locked
    monkeypatch.setattr(directory, "lock_file", lambda file, *, shared=False: False)
    status, text = vedette("stop", run.root)
    assert status == 2
    assert text.startswith(f"vedette: {run.root}: its learner is process {process.pid}, running on")
    assert text.endswith("stop it there\n")


@pytest.mark.parametrize("name", ["summary.json", "provenance.json", "config.toml", "run.json"])
def test_a_run_whose_files_cannot_be_read_is_not_shown_as_one_that_has_none(
    vedette: Run, tmp_path: Path, name: str
) -> None:
    whole, run = make_run(tmp_path / "a", opt_steps=7), make_run(tmp_path / "b", opt_steps=7)
    (run.root / name).unlink(missing_ok=True)
    (run.root / name).mkdir()
    listed = [json.loads(line) for line in vedette("runs", tmp_path, "--json")[1].splitlines()]
    states = {Path(each["run"]).name: each["state"] for each in listed}
    assert states["b"].startswith(f"unreadable: {run.root / name}: "), states
    assert "unreadable" not in states["a"]
    for command in (["status", run.root], ["report", run.root], ["report", tmp_path]):
        status, text = vedette(*command)
        assert status != 0
        assert str(run.root / name) in text.splitlines()[0]
    assert vedette("report", whole.root)[0] == 0


def test_a_folder_that_cannot_be_looked_into_is_said(
    vedette: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "a", opt_steps=7)
    closed = make_run(tmp_path / "b", opt_steps=7).root
    look = os.scandir

    def refuse(place: Any = ".") -> Any:
        if os.fspath(place) == os.fspath(closed):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(place))
        return look(place)

    monkeypatch.setattr(os, "scandir", refuse)
    said = f"vedette: left out: .*{closed}: Permission denied; let this user read and write it"
    status, text = vedette("runs", tmp_path)
    assert (status, text.count(str(tmp_path / "a"))) == (0, 1)
    assert re.search(said, text)
    left_out: list[OSError] = []
    assert find_runs(tmp_path, left_out=left_out) == [tmp_path / "a"]
    assert [error.filename for error in left_out] == [str(closed)]


def test_a_run_of_another_host_is_not_stopped_from_here(
    vedette: Run, locked: tuple[RunDirectory, "subprocess.Popen[str]"]
) -> None:
    run, _ = locked
    (run.root / "lock").write_text("77 far-away\n")
    status, text = vedette("stop", run.root)
    assert (status, text) == (
        2,
        f"vedette: {run.root}: its learner is process 77 on far-away; stop it there\n",
    )


def claim_elsewhere(run: RunDirectory, *, age_s: float) -> None:
    """Have a learner of another host, whose lock is not seen here, move its record so long ago."""
    identity = json.loads((run.root / "run.json").read_text())
    owner = Owner("0123", "far-away", 77, boot="another", namespace="another")
    (run.root / "run.json").write_text(json.dumps({**identity, "owner": asdict(owner)}))
    ClaimRecord(run.root / "claim").make(owner)
    moved = time.time() - age_s
    os.utime(run.root / "claim", (moved, moved))


@pytest.mark.parametrize("locks", [True, False])
def test_a_run_of_another_host_that_shares_no_locks_is_running_there(
    vedette: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    monkeypatch.setattr(directory, "lock_file", lambda file, *, shared=False: locks)
    run = make_run(tmp_path / "runs" / "one", opt_steps=60)
    (run.root / "lock").touch()
    claim_elsewhere(run, age_s=4.0)
    there = "running on far-away (as its record of AGE s ago says)"
    listed = json.loads(vedette("runs", "--json")[1])
    assert (listed["state"], listed["host"]) == ("running", "far-away")
    assert "running on far-away" in vedette("runs")[1]
    location = LearnerLocation("127.0.0.1:5555", "127.0.0.1:5555", "far-away", 77, 0.0)
    run.location_file.write_text(json.dumps(asdict(location)))
    status, text = vedette("status", run.root)
    last = re.sub(r"of \d s", "of AGE s", text.splitlines()[-1])
    assert (status, last) == (0, f"{there}; this is what it wrote last")
    status, text = vedette("stop", run.root)
    stopped = f"{run.root}: its learner is process 77 on far-away, {there}; stop it there"
    assert (status, re.sub(r"of \d s", "of AGE s", text)) == (2, f"vedette: {stopped}\n")


@pytest.mark.parametrize("age_s", [3600.0, -3600.0, None])
def test_a_learner_of_another_host_that_has_ended_is_not_running_there(
    vedette: Run, tmp_path: Path, age_s: float | None
) -> None:
    run = make_run(tmp_path / "runs" / "one", opt_steps=60)
    claim_elsewhere(run, age_s=age_s or 0.0)
    if age_s is None:
        owner = run.identity().owner
        assert owner is not None
        ClaimRecord(run.root / "claim").release(owner)
    listed = json.loads(vedette("runs", "--json")[1])
    assert (listed["state"], listed["host"]) == ("killed", "")
    status, text = vedette("status", run.root)
    assert status == 0
    still = "no learner runs: that on far-away has moved no record for 1:00:00 h; there is no"
    assert (still in text) == (age_s == 3600.0)
    assert vedette("stop", run.root)[0] == 0


def test_a_process_that_does_not_hold_the_lock_gets_no_signal(
    vedette: Run, locked: tuple[RunDirectory, "subprocess.Popen[str]"]
) -> None:
    run, _ = locked
    host = os.uname().nodename
    (run.root / "lock").write_text(f"{os.getpid()} {host}\n")
    status, text = vedette("stop", run.root)
    assert status == 2
    assert f"process {os.getpid()} does not hold its lock" in text


def test_the_status_of_a_run_that_has_ended_is_its_last(vedette: Run, tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", exit_reason="max_opts", opt_steps=60, run_id="a", epoch=1)
    status, text = vedette("status", run.root)
    assert status == 0
    assert text.splitlines()[-1] == "the run has ended: done: stop.max_opts is reached"
    assert json.loads(vedette("status", run.root, "--json")[1])["opt_steps"] == 60


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({"opt_steps": 60}, "no learner runs: it was killed; there is no checkpoint"),
        ({}, "no learner runs, and none has trained"),
    ],
)
def test_a_run_without_an_end_is_told(
    vedette: Run, tmp_path: Path, summary: dict[str, Any], said: str
) -> None:
    run = make_run(tmp_path / "one", **summary)
    status, text = vedette("status", run.root)
    assert status == 0
    assert said in text


def test_the_status_of_no_run_is_refused(vedette: Run) -> None:
    assert vedette("status", "nowhere") == (2, "vedette: nowhere: there is no such folder\n")


def test_a_learner_that_has_moved_is_found(
    locked: tuple[RunDirectory, "subprocess.Popen[str]"],
) -> None:
    run, process = locked
    with RunStatus(run.root) as asker:
        for port in (21_000, 22_000):
            with publish_location(run, Address("127.0.0.1", port), None):
                assert asker.ask(0.1) is None  # nobody answers
                assert asker.address == Address("127.0.0.1", port)
        assert asker.end == ""
        process.terminate()
        process.wait(10)
        found = asker.ask(0.1)
        assert found is not None
        assert found.opt_steps == 7
        assert asker.address is None
        assert asker.end.startswith("no learner runs")


def test_watching_says_when_a_run_has_ended_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "one", opt_steps=5)
    lines: list[str] = []
    looks: list[int | None] = []

    class Shown(View):
        def show(self, status: Any) -> None:
            looks.append(status.opt_steps)
            run.summary_file.write_text('{"exit_reason": "max_opts", "opt_steps": 9}')
            if len(looks) == 3:
                raise KeyboardInterrupt

        def print_line(self, text: str) -> None:
            lines.append(text)

    monkeypatch.setattr("vedette.live.view_for", lambda **_: Shown())
    monkeypatch.setattr("vedette.cli.status.WATCH_EVERY_S", 0.0)
    with RunStatus(run.root) as asker:
        _watch(asker, 0.1)
    assert looks == [5, 9, 9]
    assert lines == ["the run has ended: done: stop.max_opts is reached"]


def test_a_start_that_has_written_nothing_shows_no_end_of_the_start_before(
    locked: tuple[RunDirectory, "subprocess.Popen[str]"],
) -> None:
    """In one process nobody answers: what is written is read."""
    run, _ = locked
    identity = json.loads((run.root / "run.json").read_text())
    (run.root / "run.json").write_text(json.dumps({**identity, "in_process": True}))
    ended = {"time_s": 100.0, "opt_steps": 7, "exit_reason": "max_opts", "phase": "done"}
    run.summary_file.write_text(json.dumps(ended))
    run.provenance_file.write_text(json.dumps([{"began_s": 50.0}, {"began_s": 200.0}]))
    with RunStatus(run.root) as asker:
        found = asker.ask(0.1)
        assert found is not None
        assert (found.opt_steps, found.phase, found.exit_reason) == (7, "starting", "")
        run.summary_file.write_text(json.dumps({**ended, "time_s": 300.0, "waits": "it ends"}))
        found = asker.ask(0.1)
        assert found is not None
        assert found.exit_reason == "max_opts"
