import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starts import spec_of  # of tests/support

from vedette.live import View
from vedette.local import daemons as local_run
from vedette.local.daemons import LocalRun, configured_packages, free_port, last_lines
from vedette_rl.envs.make import environment_spaces
from vedette_services.config import RunConfig
from vedette_services.errors import REFUSED, DaemonFailedError, UnsavedEndError
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import EventFile, RunEvent
from vedette_services.run.outcome import read_summary, status_at_end
from vedette_services.run.provenance import read_provenance
from vedette_services.run.resume import ResumePoint
from vedette_services.run.start import Start
from vedette_services.run.start_plan import StartPlan
from vedette_services.status.records import StatusRecordWriter, TrainerStatus
from vedette_services.status.status import Status, Time

CONFIG = RunConfig.model_validate({"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}})
FAKE = """
import os, pathlib, signal, sys, time
name, script = sys.argv[1], dict(pair.split("=", 1) for pair in os.environ["FAKES"].split(";"))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
pids = pathlib.Path(os.environ["PIDS"])
(pids / f"{name}-{os.getpid()}").touch()
print("hello from", name, flush=True)
ready = pids.with_name("ready").touch
exec(script[name])
"""


KEEP_PLAN = "pathlib.Path(os.environ['PIDS'], '../given.json').write_text(open(sys.argv[3]).read())"


WRITE_SUMMARY = (
    "pathlib.Path(sys.argv[5], 'summary.json').write_text("
    """'{"exit_reason": "interrupted", "time_s": 9e9, "run_id": "a", "epoch": 1}')"""
)


def start_of(config: RunConfig, out: Path) -> StartPlan:
    """A plan that nothing was checked for."""
    return StartPlan(config, out, Start(), environment_spaces(config.env), ResumePoint())


def given(tmp_path: Path) -> StartPlan:
    """The plan that the learner was given."""
    return StartPlan.from_json((tmp_path / "given.json").read_text())


def python_of(script: str) -> Callable[..., list[str]]:
    """Daemons that do this."""
    return lambda *arguments: [sys.executable, "-c", script, *arguments]


class Hearing(View):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def print_line(self, text: str) -> None:
        self.heard.append(text)


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs two daemons made of a line of Python each; afterwards none of them may be left."""
    pids = tmp_path / "pids"
    pids.mkdir()
    monkeypatch.setenv("PIDS", str(pids))
    monkeypatch.setattr(local_run, "ACTORS_STOP_S", 1.0)

    def run(learner: str, actors: str, stop: Any = None, view: Any = None) -> LocalRun:
        monkeypatch.setenv("FAKES", f"learner={learner};actors={actors}")
        return LocalRun(
            start_of(CONFIG, tmp_path / "run"),
            view=view or View(),
            command=python_of(FAKE),
        )

    yield run
    for file in pids.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.name.rpartition("-")[2]), 0)


def silent(timeout_s: float) -> None:
    time.sleep(0.01)


def test_a_log_that_is_removed_is_said(fakes: Any, tmp_path: Path) -> None:
    view = Hearing()
    logs = tmp_path / "run" / "log"

    def ask(timeout_s: float) -> None:
        if not view.heard[1:] and (logs / "actors.log").exists():
            shutil.rmtree(logs)
        if len(view.heard) == 3:
            (tmp_path / "end").touch()
        silent(timeout_s)

    wait = "[time.sleep(0.01) for _ in iter(pids.with_name('end').exists, True)]"
    with fakes(wait, "time.sleep(60)", view=view) as run:
        run.watch(ask, None)
    gone = [
        f"{logs / name}.log is gone: what is written to it is lost"
        for name in ("learner", "actors")
    ]
    assert view.heard[1:] == gone


def test_a_run_ends_with_its_learner_and_the_actors_are_seen_off(
    fakes: Any, tmp_path: Path
) -> None:
    with fakes(KEEP_PLAN, "time.sleep(0.4)") as run:
        run.watch(silent, None)
    log = tmp_path / "run" / "log"
    assert "hello from learner" in (log / "learner.log").read_text()
    assert given(tmp_path).config.env.id == "CartPole-v1"
    assert not list(log.glob("*.json"))


def test_a_process_of_the_learner_that_died_is_said_once(fakes: Any, tmp_path: Path) -> None:
    view = Hearing()
    path = tmp_path / "run" / "events.jsonl"
    (tmp_path / "run").mkdir()
    EventFile(path).add(RunEvent(time.time() - 60.0, "died", "gateway", "of an earlier start"))
    text = "signal 9; it is started again"

    def ask(timeout_s: float) -> None:
        EventFile(path).add(RunEvent(time.time(), "epoch", "trainer", "epoch 2"))
        if not any("died" in line for line in view.heard):
            EventFile(path).add(RunEvent(time.time() + 0.001, "died", "trainer", text))

    with fakes("time.sleep(2.5)", "time.sleep(0.4)", view=view) as run:
        run.watch(ask, None)
    assert [x for x in view.heard if "died" in x] == [f"the trainer died: {text}"]


@pytest.mark.parametrize(
    ("now", "waits"),
    [
        (TrainerStatus(epoch=1, phase="done", exit_reason="target_return"), "the learner ends"),
        (TrainerStatus(epoch=1, phase="done", opt_steps=9, evaluates=True), "the last evaluation"),
        (TrainerStatus(epoch=2, phase="done", exit_reason="max_opts"), None),
        (TrainerStatus(epoch=1, phase="training"), None),
    ],
)
def test_a_learner_that_ends_and_answers_no_more_is_said_to_end(
    tmp_path: Path, now: TrainerStatus, waits: str | None
) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    spec_of(run, "a", CONFIG, Address("127.0.0.1", 5555)).write()
    record = StatusRecordWriter(run.learning_map, TrainerStatus)
    record.write(now)
    record.close()
    found = status_at_end(tmp_path, Status(run_id="a", epoch=1))
    assert (found is None) if waits is None else (found is not None and waits in found.waits)
    if now.exit_reason == "target_return":
        assert found is not None
        why = "done: an evaluation reached the target return, which no fresh episodes confirmed"
        assert found.waits == f"the learner ends ({why})"


def test_a_learner_that_somebody_else_stopped_takes_its_actors_along(
    fakes: Any, tmp_path: Path
) -> None:
    """They would wait for it to come back."""
    stopped = f"while not [*pids.glob('actors-*')]: time.sleep(0.01)\n{WRITE_SUMMARY}"
    with fakes(stopped, "time.sleep(60)\nprint('not asked')") as run:
        status = run.watch(lambda timeout_s: Status(run_id="a", epoch=1), None)
        assert status.exit_reason == "interrupted"
        assert run._children["actors"].returncode == 0


def test_a_learner_that_a_second_signal_meets_at_its_end_has_ended_well(
    fakes: Any, tmp_path: Path
) -> None:
    """A service manager stops the learner and the run; the run then stops the learner, too."""
    script = f"{WRITE_SUMMARY}\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)\ntime.sleep(60)"
    stop: list[bool] = []

    def answered(timeout_s: float) -> Status:
        if (tmp_path / "run" / "summary.json").exists():
            stop.append(True)
        return Status(run_id="a", epoch=1)

    with fakes(script, "time.sleep(60)") as run:
        assert run.watch(answered, stop).exit_reason == "interrupted"


def test_a_learner_gets_its_own_configuration_beside_another_start(
    fakes: Any, tmp_path: Path
) -> None:
    wait = "pathlib.Path(os.environ['PIDS'], '../go')"
    slow = fakes(f"while not {wait}.exists(): time.sleep(0.01)\n{KEEP_PLAN}", "pass")
    other = CONFIG.model_copy(update={"seed": 77})

    def another_start(timeout_s: float) -> None:
        if not (tmp_path / "go").exists():
            learner = LocalRun(
                start_of(other, tmp_path / "run"), view=View(), command=python_of("pass")
            )
            with learner:
                learner.watch(silent, None)
            (tmp_path / "go").touch()

    with slow as run:
        run.watch(another_start, None)
    assert given(tmp_path).config.seed == CONFIG.seed


def test_a_learner_that_fails_ends_the_run_with_its_exit_report(fakes: Any) -> None:
    view = Hearing()
    learner = "print('one', 'vedette: no good', sep=chr(10))\nsys.exit(1)"
    with (
        pytest.raises(DaemonFailedError, match="learner ended with exit status 1: no good") as e,
        fakes(learner, "time.sleep(60)", view=view) as run,
    ):
        run.watch(silent, None)
    assert e.value.exit_status == 1
    assert "one" in view.heard


def test_a_learner_that_says_why_it_fails_needs_no_log_for_it(fakes: Any, tmp_path: Path) -> None:
    view = Hearing()
    learner = "os.write(int(os.environ['VEDETTE_LAST_WORDS_FD']), b'x.map: no room')\nsys.exit(1)"
    with (
        pytest.raises(DaemonFailedError, match=r"exit status 1: x\.map: no room \(its log: ") as e,
        fakes(learner, "time.sleep(60)", view=view) as run,
    ):
        run.watch(silent, None)
    assert e.value.exit_status == 1
    assert "hello from learner" in (tmp_path / "run/log/learner.log").read_text()
    assert "hello from learner" not in view.heard


def test_a_refused_manager_ends_the_run_with_status_3(fakes: Any) -> None:
    with (
        pytest.raises(DaemonFailedError) as e,
        fakes("time.sleep(60)", f"sys.exit({REFUSED})") as run,
    ):
        run.watch(silent, None)
    assert e.value.exit_status == REFUSED


def test_actors_that_give_up_fail_the_run_although_its_learner_ends_well(
    fakes: Any, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    learner = f"""
pathlib.Path({str(out)!r}, "provenance.json").write_text(
    '[{{"began_s": ' + str(time.time() + 1.0) + ', "exit_reason": "interrupted"}}]')
time.sleep(60)"""
    actors = "os.write(int(os.environ['VEDETTE_LAST_WORDS_FD']), b'no actor can play here: boom')"
    with (
        pytest.raises(DaemonFailedError, match="boom"),
        fakes(learner, f"time.sleep(1)\n{actors}\nsys.exit(1)") as run,
    ):
        run.watch(silent, None)
    [start] = read_provenance(RunDirectory(out))
    assert start.exit_reason == "failed"
    assert "no actor can play here: boom" in start.failure


def test_a_killed_manager_is_started_again(fakes: Any, tmp_path: Path) -> None:
    view = Hearing()
    first = "time.sleep(60) if len(list(pids.glob('actors-*'))) > 1 else "
    with fakes("time.sleep(1.5)", first + "os.kill(os.getpid(), 9)", view=view) as run:
        run.watch(silent, None)
    assert len(list((tmp_path / "pids").glob("actors-*"))) == 2
    assert view.heard[1:] == ["the actor manager ended with signal 9: starting it again"]


def test_a_manager_that_somebody_else_stopped_is_started_again_unless_the_run_is_over(
    fakes: Any, tmp_path: Path
) -> None:
    view = Hearing()
    actors = """
if len(list(pids.glob("actors-*"))) > 1:
    os.write(int(os.environ["VEDETTE_LAST_WORDS_FD"]), b"the run is over (max_env_steps)")
sys.exit(0)"""
    with fakes("time.sleep(2.5)", actors, view=view) as run:
        run.watch(silent, None)
    assert len(list((tmp_path / "pids").glob("actors-*"))) == 2
    assert view.heard[1:] == [
        "the actor manager ended with exit status 0 "
        "(a signal that this run did not send has stopped it): starting it again"
    ]


def test_a_manager_that_is_stopped_again_and_again_ends_the_run(
    fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_run, "RESTARTS", 0)
    with (
        pytest.raises(DaemonFailedError, match="exit status 0: a signal that this run did") as e,
        fakes("time.sleep(60)", "sys.exit(0)") as run,
    ):
        run.watch(silent, None)
    assert e.value.exit_status == 1


def test_a_request_to_stop_goes_to_the_learner_first(fakes: Any, tmp_path: Path) -> None:
    view = Hearing()
    with fakes("ready()\ntime.sleep(60)", "time.sleep(60)", view=view) as run:
        began = time.monotonic()
        run.watch(silent, _Once(tmp_path))
    assert time.monotonic() - began < 20
    said = "stopping: the learner has not begun, there is nothing to save"
    assert view.heard[1:] == [said]
    assert view.heard[0].startswith("in another terminal: vedette status ")


@pytest.mark.parametrize(
    ("training_s", "said"),
    [
        (0.0, "stopping: nothing was trained since the start, there is nothing new to save"),
        (2.0, "stopping: the learner writes a checkpoint"),
    ],
)
def test_what_there_is_to_save_is_said_at_the_stop(
    fakes: Any, tmp_path: Path, training_s: float, said: str
) -> None:
    view = Hearing()
    status = Status(run_id="a", epoch=1, opt_steps=7, time=Time(training_s=training_s))
    with fakes("ready()\ntime.sleep(60)", "time.sleep(60)", view=view) as run:
        last = run.watch(lambda timeout_s: time.sleep(0.01) or status, _Once(tmp_path))
    assert view.heard[1:] == [said]
    assert last == replace(status, exit_reason="interrupted")


def test_a_learner_whose_end_is_not_on_the_disk_fails_the_run(fakes: Any, tmp_path: Path) -> None:
    status = Status(run_id="a", epoch=1, opt_steps=7, time=Time(training_s=2.0))
    learner = (
        "from vedette_services.host.exit_report import send_exit_report, take_report_descriptor\n"
        "told = 'the end of the run is not saved: a resume begins at step 0, not 7'\n"
        "parent = take_report_descriptor()\n"
        "signal.signal(15, lambda *_: [send_exit_report(parent, told), sys.exit(1)])\n"
        "ready()\ntime.sleep(60)"
    )
    with (
        pytest.raises(UnsavedEndError, match=r"not saved: a resume begins at step 0, not 7$") as e,
        fakes(learner, "time.sleep(60)") as run,
    ):
        run.watch(lambda timeout_s: time.sleep(0.01) or status, _Once(tmp_path))
    assert (e.value.exit_status, e.value.status["opt_steps"]) == (1, 7)


def test_a_learner_that_failed_for_another_reason_says_that(fakes: Any, tmp_path: Path) -> None:
    status = Status(run_id="a", epoch=1, opt_steps=7, exit_reason="interrupted")
    learner = (
        "signal.signal(15, lambda *_: [print('vedette: no good', flush=True), sys.exit(1)])\n"
        "ready()\ntime.sleep(60)"
    )
    with (
        pytest.raises(DaemonFailedError, match="exit status 1: no good"),
        fakes(learner, "time.sleep(60)") as run,
    ):
        run.watch(lambda timeout_s: time.sleep(0.01) or status, _Once(tmp_path))


def test_the_manager_has_the_same_name_at_every_start(fakes: Any, tmp_path: Path) -> None:
    actors = "print(sys.argv[1:])"
    for _ in range(2):
        with fakes("time.sleep(0.3)", actors) as run:
            run.watch(silent, None)
    log = (tmp_path / "run/log/actors.log").read_text()
    assert log.count("'--id', 'local'") == 2


def test_an_error_in_the_view_leaves_nobody_behind(fakes: Any) -> None:
    def broken(timeout_s: float) -> None:
        raise RuntimeError("the terminal is gone")

    with (
        pytest.raises(RuntimeError, match="the terminal is gone"),
        fakes("time.sleep(60)", "time.sleep(60)") as run,
    ):
        run.watch(broken, None)


class _Once:
    """Becomes true, as a signal would make it, once the learner has called `ready`."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "ready"

    def __bool__(self) -> bool:
        return self._file.exists()


def test_what_the_operator_named_may_be_imported_by_local_actors() -> None:
    config = RunConfig.model_validate(
        {
            "env": {"id": "my_pkg.envs:Mine-v0", "wrappers": ["other.wrap:Wrap"]},
            "agent": {"name": "dqn"},
        }
    )
    assert configured_packages(config) == ["my_pkg", "other"]
    assert configured_packages(CONFIG) == []


def test_a_free_port_is_free_with_the_two_above_it() -> None:
    port = free_port()
    assert 15_000 <= port < 32_000
    for above in range(3):
        with socket.socket() as s:
            s.bind(("127.0.0.1", port + above))


def test_the_last_lines_of_a_log_leave_out_empty_ones(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("one\n\ntwo\n \nthree\n")
    assert last_lines(log, 2) == ["two", "three"]
    assert last_lines(tmp_path / "none.log", 2) == []


def test_a_summary_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    assert read_summary(tmp_path) == Status()
    (tmp_path / "summary.json").write_text("[1")
    assert read_summary(tmp_path) == Status()


def test_a_daemon_started_for_a_run_leaves_the_terminals_process_group(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from vedette.cli.app import _join_parent\n"
        "before = os.getpgrp(); _join_parent()\n"
        "print(os.getpgrp() == os.getpid(), before == os.getpid())\n"
    )
    for parent, expected in ((str(os.getpid()), "True False"), ("", "False False")):
        environment = {**os.environ, "VEDETTE_PARENT_PID": parent}
        if not parent:
            del environment["VEDETTE_PARENT_PID"]
        ended = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert ended.stdout.strip() == expected


def test_a_daemon_of_a_run_is_out_of_the_terminals_reach_from_its_first_moment(fakes: Any) -> None:
    alone = "sys.exit(0 if os.getpgrp() == os.getpid() else 7)"
    with fakes(alone, "time.sleep(60)") as run:
        run.watch(silent, None)
