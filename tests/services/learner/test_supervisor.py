"""The supervisor gives up on a process that an error ends again and again, and restarts an
evaluator that stands still; killed processes of environments end no run."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from configurations import configured
from starts import plan, spec_of

from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import ModelInfo
from vedette_rl.envs.make import environment_spaces, probe_environment
from vedette_services.config import RunConfig, load_config
from vedette_services.errors import (
    ChildFailedError,
    EnvironmentProcessError,
    ReplayGoneError,
    RunTakenOverError,
    SamplesRejectedError,
    ServicesError,
    StartRefusedError,
    UnsavedEndError,
)
from vedette_services.learner import supervisor
from vedette_services.learner.evaluator import ModelEvaluation
from vedette_services.learner.supervisor import Supervisor, _Child, run_learner
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import read_events
from vedette_services.run.model_map import ModelMapWriter
from vedette_services.run.outcome import write_summary
from vedette_services.status.records import (
    GatewayStatus,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
    TrainingTime,
)
from vedette_services.status.status import Samples, Status

HOUR = 3600.0


def child(name: str) -> Any:
    restarts = [(k * HOUR, checkpoint) for k, checkpoint in enumerate([100, 200, 200])]
    return _Child(name, None, None, started=0.0, restarts=restarts)  # type: ignore[arg-type]  # unused


@pytest.mark.parametrize(
    ("name", "comes_again", "saved", "counted"),
    [
        ("trainer", True, 200, 2),  # from the same checkpoint
        ("trainer", True, 300, 0),  # it has got further
        ("trainer", False, 200, 0),  # killed from outside
        ("gateway", True, 200, 0),
    ],
)
def test_restarts_without_progress_count_however_long_ago(
    name: str, comes_again: bool, saved: int, counted: int
) -> None:
    restarts = child(name).recent_restarts(9 * HOUR, saved, comes_again=comes_again)
    assert len(restarts) == counted


def test_restarts_of_the_last_minutes_count() -> None:
    restarts = child("gateway").recent_restarts(2 * HOUR + 60.0, 300, comes_again=False)
    assert len(restarts) == 1


class _EndedTrainer:
    """A process that has ended as the test says, and its report."""

    def __init__(self, code: int) -> None:
        self.returncode = code

    def read(self) -> str:
        return ""


def restarting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> tuple[Any, list[str]]:
    """A supervisor whose trainer has been killed from the same checkpoint again and again, each
    time an hour after the one before, and the processes that it starts again."""
    run = RunDirectory(tmp_path)
    run.make()
    spec = spec_of(run, run.ensure_id(), configured(), Address("127.0.0.1", 5555))
    supervisor_ = Supervisor(spec, None, on_loaded=lambda: None)
    started: list[str] = []
    monkeypatch.setattr(supervisor_, "_start", started.append)
    monkeypatch.setattr(supervisor_._memory_kills, "explain", lambda _: why)
    now = time.monotonic()
    restarts = [(now - k * HOUR, 0) for k in (3, 2, 1)]
    report: Any = _EndedTrainer(-9)
    trainer = _Child("trainer", report, report, started=now - HOUR, restarts=restarts)
    return (supervisor_, trainer), started


def test_a_trainer_that_a_limit_of_memory_ends_is_not_started_again_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "killed by the system for want of memory: its control group may have 512 MB"
    (supervising, trainer), started = restarting(tmp_path, monkeypatch, why)
    with pytest.raises(ChildFailedError) as failed:
        supervising._restart(trainer, -9)
    assert str(failed.value) == f"the trainer ended with signal 9: {why}"
    assert started == []


def test_a_trainer_that_another_limit_ends_is_not_started_again_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (supervising, trainer), started = restarting(tmp_path, monkeypatch, "")
    with pytest.raises(ChildFailedError, match=r"signal \d+ \(the limit of processor time, ulimit"):
        supervising._restart(trainer, -signal.SIGXCPU)
    assert started == []


def test_a_trainer_that_somebody_kills_now_and_then_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (supervising, trainer), started = restarting(tmp_path, monkeypatch, "")
    supervising._restart(trainer, -9)
    assert started == ["trainer"]


def test_a_process_that_died_because_the_run_was_taken_over_ends_it_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (supervising, gateway), started = restarting(tmp_path, monkeypatch, "")
    run = supervising._spec.run
    run.lock()
    (tmp_path / "run.json").write_text(f'{{"run_id": "{run.identity().run_id}", "epoch": 3}}')
    gateway.name = "gateway"
    with pytest.raises(RunTakenOverError, match="has taken the run over"):
        supervising._restart(gateway, 1)
    assert started == []
    run.unlock()


def test_a_gateway_is_not_started_on_another_replay_than_the_trainer_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = supervisor_with(Forks(0), tmp_path, monkeypatch)
    run = watching._spec.run
    ingest = StatusRecordWriter(run.ingest_map, GatewayStatus)
    watching._start("gateway")
    ingest.write(GatewayStatus(Samples()))
    run.replay.mkdir()
    (run.replay / "cursor.bin").touch()
    assert watching._watch(())  # type: ignore[arg-type]  # it is not stopped
    first = watching._children["gateway"].process
    first.kill()
    first.wait()
    watching._start("gateway")
    shutil.rmtree(run.replay)
    with pytest.raises(ReplayGoneError, match="it goes on with an empty one"):
        watching._start("gateway")
    watching._end_children()


class Signalled(gym.Wrapper[Any, Any, Any, Any]):
    """Where it has a process of its own, that sends itself a signal in a step; only one of them
    does, where `once` is a file that is not there yet."""

    def __init__(self, env: Any, number: int, once: str = "") -> None:
        super().__init__(env)
        self._number = number
        self._once = once

    def step(self, action: Any) -> Any:
        if sys.argv[0].endswith("env_workers.py"):
            with suppress(FileExistsError):
                if self._once:
                    os.close(os.open(self._once, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), self._number)
        return super().step(action)


def signalled(number: int, once: Path | None = None) -> RunConfig:
    kwargs = {"number": int(number), **({"once": str(once)} if once else {})}
    table = {
        "preset": "none",
        "env": {
            "id": "CartPole-v1",
            "stepping": "processes",
            "wrappers": [{"name": f"{__name__}:Signalled", "kwargs": kwargs}],
        },
        "agent": {"name": "dqn", "hidden_sizes": [16]},
        "evaluation": {"episodes": 2, "episode_timeout_s": 1.0},
    }
    return configured(table=table)


def model_evaluation(config: RunConfig, place: Path) -> ModelEvaluation:
    return ModelEvaluation(config, environment_spaces(config.env), "run", place)


def model() -> ModelInfo:
    config = load_config(env="CartPole-v1", settings=["agent.hidden_sizes=[16]"], environment={})
    spaces = probe_environment(config.config.env)
    agent = config.config.agent
    arrays = agent_kind("dqn").build_agent(agent, spaces, device="cpu", seed=0).model_info().arrays
    return ModelInfo(40, arrays)


def test_an_evaluation_goes_on_where_an_environments_process_was_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evaluation = model_evaluation(signalled(signal.SIGKILL, tmp_path / "once"), tmp_path)
    assert evaluation.evaluate(1, model(), 160)
    (said, *_) = caplog.messages
    assert "an environment's process ended: signal 9" in said
    assert "made again, its episode begins again" in said
    evaluation.close()


def test_an_environment_that_crashes_each_time_is_an_error(tmp_path: Path) -> None:
    evaluation = model_evaluation(signalled(signal.SIGSEGV), tmp_path)
    with pytest.raises(EnvironmentProcessError, match="process ended: signal 11"):
        evaluation.evaluate(1, model(), 160)
    evaluation.close()


class Forks:
    """Starts nothing but what a test does not watch, and refuses the first so many times."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.started: list[list[str]] = []

    def __call__(self, argv: list[str], *, name: str, **_: object) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise StartRefusedError(name, "the limit of processes is reached", "raise it")
        self.started.append(argv)
        return subprocess.Popen(["sleep", "100"])


def supervisor_with(
    forks: Forks,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    on_loaded: Callable[[], None] = lambda: None,
) -> Supervisor:
    """A supervisor whose clock is the test's and whose gateway is about to be started."""
    run = RunDirectory(place / "run")
    run.make()
    spec = spec_of(run, run.ensure_id(), signalled(signal.SIGKILL), Address())
    spec.write()
    monkeypatch.setattr(supervisor, "spawn", forks)
    return Supervisor(spec, None, on_loaded=on_loaded)


def test_what_a_start_changes_is_saved_once_its_trainer_has_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the best model and the settings stay: `prepare_start` hands over what saves."""
    saved: list[str] = []
    watching = supervisor_with(Forks(0), tmp_path, monkeypatch, lambda: saved.append("settings"))
    learning = StatusRecordWriter(watching._spec.run.learning_map, TrainerStatus)
    try:
        watching._start("gateway")
        for phase, times in (("starting", 0), ("waiting", 1), ("training", 1)):
            learning.write(TrainerStatus(epoch=2, phase=phase))
            assert watching._watch(())  # type: ignore[arg-type]  # it is not stopped
            assert len(saved) == times, phase
    finally:
        watching._end_children()


def test_a_restart_that_the_system_refuses_is_tried_again_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forks = Forks(0)
    watching = supervisor_with(forks, tmp_path, monkeypatch)
    try:
        watching._start("gateway")
        watching._children["gateway"].process.kill()
        watching._children["gateway"].process.wait(10.0)
        forks.refusals = 2
        monkeypatch.setattr(supervisor, "_REFUSED_WAIT_S", 0.01)
        deadline = time.monotonic() + 30.0
        while len(forks.started) < 2:
            assert time.monotonic() < deadline, caplog.text
            assert watching._watch(())  # type: ignore[arg-type]  # it is not stopped
        assert watching._children["gateway"].process.poll() is None
        refusals = [text for text in caplog.messages if "tried again" in text]
        assert len(refusals) == 2
        assert refusals[0].startswith(
            "the gateway cannot be started: the limit of processes is reached"
        )
    finally:
        watching._end_children()


def test_a_learner_that_cannot_be_started_at_all_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = supervisor_with(Forks(1), tmp_path, monkeypatch)
    with pytest.raises(StartRefusedError, match="the gateway cannot be started"):
        watching._start("gateway")


def test_restarts_that_are_refused_for_minutes_end_the_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks = Forks(0)
    watching = supervisor_with(forks, tmp_path, monkeypatch)
    try:
        watching._start("gateway")
        watching._children["gateway"].process.kill()
        watching._children["gateway"].process.wait(10.0)
        forks.refusals = 1000
        monkeypatch.setattr(supervisor, "_REFUSED_WAIT_S", 0.0)
        for _ in range(supervisor._REFUSED_STARTS):
            watching._watch(())  # type: ignore[arg-type]  # it is not stopped
        with pytest.raises(StartRefusedError):
            watching._watch(())  # type: ignore[arg-type]  # likewise
    finally:
        watching._end_children()


def test_a_run_that_gains_no_samples_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = supervisor_with(Forks(0), tmp_path, monkeypatch)
    ingest = StatusRecordWriter(watching._spec.run.ingest_map, GatewayStatus)
    ingest.write(GatewayStatus(unusable="9 of the 9 samples of 10 s were rejected: NaN"))
    with pytest.raises(SamplesRejectedError, match="NaN; fix the environment, or wrap it"):
        watching._watch(())  # type: ignore[arg-type]  # nobody stops it
    watching._end_children()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_evaluator_that_stands_still_is_restarted_and_one_that_plays_or_waits_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_STARTING_S", 12.0)  # until it plays
    run = RunDirectory(tmp_path / "run")
    config = signalled(signal.SIGSTOP, tmp_path / "once")
    run.make()
    spec = spec_of(run, run.ensure_id(), config, Address())
    spec.write()
    watching = Supervisor(spec, None, on_loaded=lambda: None)
    ModelMapWriter(run.model_map, Schema.from_arrays(model().arrays)).write(1, model())
    learning = StatusRecordWriter(run.learning_map, TrainerStatus)
    learning.write(TrainerStatus(epoch=1, opt_steps=40, phase="training"))
    watching._start("evaluator")
    try:
        still = watching._children["evaluator"].process
        quiet_until = deadline = time.monotonic() + 80.0
        while (now := time.monotonic()) < quiet_until:
            assert now < deadline, "no evaluation"
            watching._watch(())  # type: ignore[arg-type]  # nobody stops it
            if watching._records.read().eval.version == 40 and quiet_until == deadline:
                quiet_until = now + 15.0
            time.sleep(0.05)
        assert still.poll() == -signal.SIGKILL
        events, _ = read_events(run.events_file)
        said, *_ = [event.text for event in events if event.kind == "died"]
        assert said.startswith("it stood still, no step for 12 s (evaluation.episode_timeout_s)")
    finally:
        watching._end_children()


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (ChildFailedError("trainer", 1), {"model.map"}),  # which the next start serves
        (UnsavedEndError("the disk is full", Status()), {"model.map", "learning.map"}),
    ],
)
def test_after_a_failure_the_records_go_unless_they_are_all_that_tells_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ServicesError, left: set[str]
) -> None:
    run = RunDirectory(tmp_path / "run")

    def fail(*_: object) -> int:
        StatusRecordWriter(run.learning_map, TrainerStatus).close()
        run.model_map.touch()
        raise error

    monkeypatch.setattr(Supervisor, "run", fail)
    table = {"preset": "none", "env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}}
    with pytest.raises(type(error)):
        run_learner(plan(configured(table=table), run.root), Address.parse("127.0.0.1:28431"))
    assert {path.name for path in run.live.iterdir()} & {"model.map", "learning.map"} == left


def test_a_trainer_that_is_restarted_goes_on_counting_the_training_time(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.make()
    spec = spec_of(run, run.ensure_id(), signalled(signal.SIGKILL), Address())
    write_summary(run.summary_file, Status(time_s=1.0, seconds=5.0, run_seconds=30.0), ended=True)
    starting = Supervisor(spec, None, on_loaded=lambda: None)
    starting._announce(2)
    learning = StatusRecordReader(run.learning_map, TrainerStatus)
    before = learning.read().trained
    assert before == TrainingTime(earlier_s=30.0)
    record = StatusRecordWriter(run.learning_map, TrainerStatus)
    now = replace(before, start_s=12.0)
    record.write(replace(learning.read(), trained=now))
    record.close()
    starting._announce(3)  # it has died
    assert learning.read().trained == now
