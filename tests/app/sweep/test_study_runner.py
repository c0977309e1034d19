"""A study runs trials, stops those that fall behind, and goes on wherever it was killed."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from configurations import configured

from vedette.cli.app import main
from vedette.sweep.study import Study
from vedette.sweep.study_journal import POINTS, Workers, open_study
from vedette.sweep.study_runner import StudyRunner, best_trial
from vedette_rl.storage.system import lock_file
from vedette_services.config import load_config, read_config
from vedette_services.errors import UsageError
from vedette_services.host.processes import StopSignals

optuna = pytest.importorskip("optuna")
STUDY = """
trials = {trials}
seeds = {seeds}
pruner = "{pruner}"
sampler = "random"
[settings.stop]
max_opts = 100
target_return = "none"
[space]
"agent.learning_rate" = {{low = 1e-4, high = 1e-2, log = true}}
"""

# A run that evaluates to 1e6 times its learning rate: `at(80)` is after 80 of 100 steps.
FAKE = """
import json, os, pathlib, signal, sys, time, tomllib
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir(parents=True, exist_ok=True)
config = tomllib.loads(pathlib.Path(sys.argv[4]).read_text())
rate, seed = config["agent"]["learning_rate"], config["seed"]
with open(os.environ["BEGUN"], "a") as begun: begun.write(f"{out.name} {os.getpid()}\\n")
def at(steps, reason=""):
    aside = out / "aside"
    aside.write_text(json.dumps({"run_id": "x", "exit_reason": reason, "opt_steps": steps,
        "env_steps": steps, "time_s": time.time(), "stop": {"max_opts": 100},
        "eval": {"return_mean": 1e6 * rate, "best_return_mean": 1e6 * rate, "version": steps}}))
    aside.rename(out / "summary.json")
def stopped(*_):
    at(60, "interrupted")
    sys.exit(0)
signal.signal(signal.SIGTERM, stopped)
(out / "run.json").touch()
exec(os.environ["FAKE"])
at(100, "max_opts")
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", FAKE, "-m", "vedette.cli", *arguments]


Make = Callable[..., StudyRunner]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes runners of one study; afterwards no process of theirs may be left."""

    def make(
        script: str = "", trials: int = 3, seeds: int = 1, pruner: str = "none", **options: Any
    ) -> StudyRunner:
        monkeypatch.setenv("FAKE", script)
        monkeypatch.setattr("vedette.sweep.jobs._LOOK_S", 0.02)
        monkeypatch.setattr("vedette.sweep.study_runner._LOOK_EVERY_S", 0.05)
        monkeypatch.setenv("BEGUN", str(tmp_path / "begun"))
        file = tmp_path / "study.toml"
        file.write_text(STUDY.format(trials=trials, seeds=seeds, pruner=pruner))
        return StudyRunner(Study(file), tmp_path / "out", command=command, **{"jobs": 1, **options})

    yield make
    for line in begun(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(int(line.split()[1]), 0)


def begun(tmp_path: Path) -> list[str]:
    file = tmp_path / "begun"
    return file.read_text().splitlines() if file.exists() else []


def states(runner: StudyRunner) -> list[str]:
    return [trial.state.name for trial in runner._study.get_trials()]


def test_the_best_trial_is_found_and_its_file_is_a_configuration(
    study: Make, tmp_path: Path
) -> None:
    said: list[str] = []
    runner = study(jobs=2, say=said.append)
    assert runner.run() == 0
    best = runner.best()
    assert best is not None
    rates = [trial.params["agent.learning_rate"] for trial in runner._study.get_trials()]
    assert best.value == pytest.approx(1e6 * max(rates))
    trial = tmp_path / "out/sweep" / f"trial-{best.number:04d}.toml"
    text = (tmp_path / "out/best.toml").read_text()
    found = configured(table=tomllib.loads(text), fit="here")
    assert found == read_config(trial).model_copy(update={"preset": found.preset})
    assert text.startswith(f"# trial-{best.number:04d} of ")
    lines = list(runner.lines())
    assert lines[0] == "3 trials: 3 complete"
    assert any(line.endswith("best.toml") for line in lines)
    heads, rows = runner.table()
    assert heads == ["trial", "last", "state", "agent.learning_rate"]
    assert rows[0][0] == f"trial-{best.number:04d}"
    assert [float(row[3]) for row in rows] == sorted((float(row[3]) for row in rows), reverse=True)


def test_the_value_of_a_trial_is_the_mean_of_its_seeds(study: Make, tmp_path: Path) -> None:
    runner = study("rate = rate + seed * 1e-3", trials=1, seeds=3)
    assert runner.run() == 0
    (trial,) = runner._study.get_trials()
    assert trial.value == pytest.approx(1e6 * trial.params["agent.learning_rate"] + 1e3)
    assert len(trial.intermediate_values) == 3 * POINTS
    assert [line.split()[0] for line in begun(tmp_path)] == ["seed-0", "seed-1", "seed-2"]
    assert (tmp_path / "out/trial-0000/seed-2/run.json").exists()


def test_a_trial_that_falls_behind_is_stopped_early(study: Make) -> None:
    runner = study(trials=6, jobs=1, pruner="median")
    runner.run()
    worse = min(trial.value for trial in runner._study.get_trials()) / 2e6
    said: list[str] = []
    slow = f"rate = {worse}; at(30); time.sleep(60)"
    runner = study(slow, trials=7, pruner="median", say=said.append)
    began = time.monotonic()
    assert runner.run() == 0
    assert time.monotonic() - began < 20
    assert states(runner) == ["COMPLETE"] * 6 + ["PRUNED"]
    assert any("trial-0006: stopped early: stopped after 60" in line for line in said)


def test_trials_that_were_stopped_early_are_behind_those_with_a_result(study: Make) -> None:
    runner = study()
    space = runner._file.space
    for state, value in (("PRUNED", 900.0), ("COMPLETE", -7.0), ("COMPLETE", 5.0)):
        found = optuna.trial.create_trial(
            state=optuna.trial.TrialState[state],
            value=value,
            params={"agent.learning_rate": 1e-3},
            distributions=space,
        )
        runner._study.add_trial(found)
    _, rows = runner.table()
    runner._workers.close()
    assert [row[:3] for row in rows] == [
        ["trial-0002", "5.0", "complete"],
        ["trial-0001", "-7.0", "complete"],
        ["trial-0000", "-", "stopped early"],
    ]


def test_a_trial_that_fails_is_recorded_and_the_others_go_on(study: Make) -> None:
    script = "if out.name == 'trial-0001': print('vedette: no good'); sys.exit(3)"
    runner = study(script)
    assert runner.run() == 0
    assert states(runner) == ["COMPLETE", "FAIL", "COMPLETE"]
    assert "no good" in runner._study.get_trials()[1].user_attrs["failure"]


def test_a_study_in_which_all_fail_ends_after_a_few(study: Make, tmp_path: Path) -> None:
    runner = study("sys.exit(1)", trials=50)
    assert runner.run() == 1
    assert len(begun(tmp_path)) == 3


def test_a_trial_without_an_evaluation_has_failed(study: Make) -> None:
    runner = study(
        "at = lambda *_: (out / 'summary.json').write_text('"
        '{"exit_reason": "max_opts", "opt_steps": 100, "run_id": "x"}'
        "')",
        trials=1,
    )
    assert runner.run() == 1
    assert runner._study.get_trials()[0].user_attrs["failure"] == "no evaluation of it has ended"


def test_a_stop_leaves_trials_that_the_next_start_goes_on_with(study: Make) -> None:
    said: list[str] = []
    runner = study("at(50); time.sleep(60)", jobs=2)
    assert runner.run(_After(0.7)) == 0
    assert states(runner) == ["RUNNING", "RUNNING"]
    runner = study(say=said.append)
    assert runner.run() == 0
    assert states(runner) == ["COMPLETE"] * 3
    assert [line.split()[1] for line in said if "begins" in line] == [
        "trial-0000",
        "trial-0001",
        "trial-0002",
    ]


def test_a_trial_that_was_stopped_again_and_again_does_not_fail(study: Make) -> None:
    for _ in range(4):
        stop = StopSignals(signals=())
        runner = study("time.sleep(60)", trials=1, say=lambda _, stop=stop: stop.request())
        assert runner.run(stop) == 0
        assert states(runner) == ["RUNNING"]
    runner = study(trials=1)
    assert runner.run() == 0
    assert states(runner) == ["COMPLETE"]


class _After(StopSignals):
    """Becomes true after a while, as a signal would make it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(signals=())
        threading.Timer(seconds, self.request).start()


def test_what_was_over_when_its_process_died_is_not_run_again(study: Make, tmp_path: Path) -> None:
    runner = study(trials=1)
    with runner_killed_before_it_tells(runner):
        runner.run()
    again = study(trials=1)
    assert again.run() == 0
    assert states(again) == ["COMPLETE"]
    assert len(begun(tmp_path)) == 1


class runner_killed_before_it_tells:  # noqa: N801 - reads as a function
    """Ends a runner where a kill would hurt most: its run is over, and the journal has no value."""

    def __init__(self, runner: StudyRunner) -> None:
        self._study = runner._study

    def __enter__(self) -> None:
        def die(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        self._study.tell = die  # type: ignore[method-assign]  # a kill cannot be caught

    def __exit__(self, kind: object, *_: object) -> bool:
        return kind is KeyboardInterrupt


def test_a_trial_whose_process_dies_again_and_again_fails(study: Make, tmp_path: Path) -> None:
    for _ in range(3):
        runner = study(trials=1)
        with runner_killed_before_it_tells(runner):
            runner.run()
    again = study(trials=1)
    assert again.run() == 1
    assert "has died 3 times" in again._study.get_trials()[0].user_attrs["failure"]


def test_a_worker_is_alive_while_its_process_is(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from vedette.sweep.study_journal import Workers\n"
        "mine = Workers(pathlib.Path(sys.argv[1])); print(mine.name, flush=True)\n"
        "sys.stdin.read()"
    )
    asked = [sys.executable, "-c", code, str(tmp_path / "workers")]
    other = subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdin is not None
    name = other.stdout.readline().strip()
    mine = Workers(tmp_path / "workers")
    assert mine.is_alive(name)
    assert mine.is_alive(mine.name)
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdin.close()
    other.stdout.close()
    assert not mine.is_alive(name)
    assert not mine.is_alive("")
    mine.close()


def test_a_worker_of_another_host_is_alive_while_its_file_is_touched(tmp_path: Path) -> None:
    mine = Workers(tmp_path / "workers")
    other = tmp_path / "workers/elsewhere:7:abc"
    other.touch()
    mine.beat()
    assert mine.is_alive(other.name)
    os.utime(other, (time.time() - 1e3, time.time() - 1e3))
    assert not mine.is_alive(other.name)
    assert not mine.is_alive("elsewhere:8:abc")
    mine.close()


@pytest.mark.parametrize("failure", [errno.EBADF, errno.ENOLCK])
def test_a_worker_is_alive_where_a_network_file_system_refuses_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    def lock(file: int) -> None:
        reads_only = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        if reads_only or failure == errno.ENOLCK:
            raise OSError(failure, os.strerror(failure))
        lock_file(file)

    mine, other = Workers(tmp_path), Workers(tmp_path)
    monkeypatch.setattr("vedette.sweep.study_journal.lock_file", lock)
    assert mine.is_alive(other.name)
    other.close()
    assert not mine.is_alive(other.name)
    mine.close()


def test_two_processes_share_a_study(study: Make, tmp_path: Path) -> None:
    first, second = study("time.sleep(0.5)", trials=4), study("time.sleep(0.5)", trials=4)
    other = threading.Thread(target=second.run)
    other.start()
    first.run()
    other.join()
    names = [line.split()[0] for line in begun(tmp_path)]
    assert sorted(names) == [f"trial-{k:04d}" for k in range(4)]
    assert states(first) == ["COMPLETE"] * 4


@pytest.mark.parametrize("script", ["at(50); time.sleep(60)", "", "sys.exit(1)"])
@pytest.mark.parametrize("ended", [False, True])
def test_a_trial_that_another_host_has_taken_over_ends_without_a_result(
    study: Make, tmp_path: Path, script: str, ended: bool
) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if "begins" in line:
            (tmp_path / "out/workers/elsewhere:1:abc").touch()
            other = open_study(Study(tmp_path / "study.toml"), tmp_path / "out")
            optuna.Trial(other, 0).set_user_attr("worker", "elsewhere:1:abc")
            if ended:
                other.tell(0, 5.0)

    runner = study(script, trials=1, say=say)
    began = time.monotonic()
    assert runner.run() == (0 if ended else 1)
    assert time.monotonic() - began < 20
    assert "trial-0000: another process has taken it over" in said[-1]
    (trial,) = runner._study.get_trials()
    assert (trial.state.name, trial.value) == (("COMPLETE", 5.0) if ended else ("RUNNING", None))
    assert trial.intermediate_values == {}
    assert "failure" not in trial.user_attrs


def test_the_file_of_the_best_is_not_replaced_by_an_older_best(
    study: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study(trials=1).run()
    first, second = study(trials=1), study(trials=1)
    other = threading.Thread(target=second._publish_best)

    def late() -> Any:
        best = best_trial(first._study)
        second._study.tell(second._study.ask(second._file.space), 1e9)
        other.start()
        other.join(0.3)
        return best

    monkeypatch.setattr(first, "best", late)
    first._publish_best()
    other.join()
    assert (tmp_path / "out/best.toml").read_text().startswith("# trial-0001 of ")
    monkeypatch.undo()
    for runner in (first, second):
        assert runner.run() == 0


def test_another_study_in_the_directory_is_refused(study: Make, tmp_path: Path) -> None:
    study(trials=1).run()
    assert study(trials=2).run() == 0  # more trials are welcome
    with pytest.raises(UsageError, match="holds a study with seeds=1, not 2; only"):
        study(trials=2, seeds=2)


def test_a_journal_whose_last_line_is_cut_is_read(study: Make, tmp_path: Path) -> None:
    study(trials=1).run()
    journal = tmp_path / "out/study.journal"
    journal.write_bytes(journal.read_bytes() + b'{"op_code":4,"wor')
    runner = study(trials=2)
    assert runner.run() == 0
    assert states(runner) == ["COMPLETE"] * 2


@pytest.mark.slow
def test_the_command_searches_a_learning_rate_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        'trials = 3\n[settings]\npreset = "none"\nseed = 1\n'
        "stop = {max_opts = 300}\nevaluation = {episodes = 2}\n"
        "learner = {eval_interval = 100, warmup_period = 64}\n"
        "actors = {n_buffer = 16, count = 1}\n"
        '[space]\n"agent.learning_rate" = {low = 1e-4, high = 1e-2, log = true}\n'
    )
    out = tmp_path / "out"
    asked = [sys.executable, "-m", "vedette.cli", "sweep", str(file), "--out", str(out)]
    asked += ["--in-process", "--jobs", "1"]
    first = subprocess.Popen(asked, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (out / "trial-0001/run.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    first.kill()
    first.wait()
    done = subprocess.run(asked, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert "3 trials: 3 complete" in done.stdout
    best = best_trial(open_study(Study(file), out))
    assert best is not None
    config = load_config(out / "best.toml", environment={}).config
    assert config.agent.model_dump()["learning_rate"] == best.params["agent.learning_rate"]
    summaries = [json.loads(path.read_text()) for path in out.glob("trial-*/summary.json")]
    assert [summary["exit_reason"] for summary in summaries] == ["max_opts"] * 3


def test_a_directory_with_a_run_takes_no_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/run.json").write_text('{"run_id": "x", "epoch": 1}')
    (tmp_path / "out/config.toml").touch()
    (tmp_path / "study.toml").write_text(STUDY.format(trials=1, seeds=1, pruner="none"))
    with pytest.raises(SystemExit) as left:
        main(["sweep", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out")])
    assert left.value.code == 2
    assert "already contains a single run" in capsys.readouterr().err
