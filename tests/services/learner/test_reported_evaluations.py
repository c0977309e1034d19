"""Evaluations on their way from the gateway through the evaluator into status and curves."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from child_process import child_process  # of tests/support

from vedette_protocol.column import Column
from vedette_protocol.model import pack_model
from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo, Record
from vedette_rl.envs.spaces import Spaces
from vedette_rl.recording.registry import TeeRecorder
from vedette_rl.storage.state_file import read_state
from vedette_services.config import RunConfig
from vedette_services.host.processes import StopSignals
from vedette_services.learner import evaluator
from vedette_services.learner.evaluator import EvaluatorProcess, ReportedEvaluations
from vedette_services.learner.gateway.actor_evaluations import CheckedEvaluation, PublishedModel
from vedette_services.learner.gateway.evaluation_handover import EvaluationHandover
from vedette_services.learner.supervisor import Supervisor
from vedette_services.learner.trainer.run_recorder import CurveRecorder
from vedette_services.net.addresses import Address
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.model_map import ModelMapWriter
from vedette_services.status.records import (
    EndedEvaluations,
    GatewayStatus,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)
from vedette_services.status.status import Eval, Samples

MODEL = Schema((Column("w", "f4", (3,)),))
CONFIG = RunConfig.model_validate(
    {"env": {"id": "nowhere:Env"}, "agent": {"name": "dqn"}, "evaluation": {"where": "actors"}}
)
SPACES = Spaces(gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(2))
"""Of an environment that no process of the learner can make."""


class Queue:
    """Gives one evaluation after another, as `ActorEvaluations` does."""

    def __init__(self, *checked: CheckedEvaluation) -> None:
        self.left = list(checked)

    def pop_finished(self) -> CheckedEvaluation | None:
        return self.left.pop(0) if self.left else None


def checked(version: int, mean: float, *, counts: bool = True) -> CheckedEvaluation:
    who = "manager a" if counts else "manager stranger"
    found = Eval(
        return_mean=mean, return_std=0.0, episodes=4, version=version, env_steps=7, played_by=who
    )
    body = pack_model(version, {"w": np.full(3, version, np.float32)}, MODEL)
    return CheckedEvaluation(found, PublishedModel(1, version, 7, body), counts)


class Passing:
    """A gateway's end and an evaluator's end, which take turns."""

    def __init__(self, place: Path, *given: CheckedEvaluation) -> None:
        run = RunDirectory(place)
        run.make()
        self.spec = LearnerSpec(run, "r", CONFIG, SPACES, Address())
        self.queue = Queue(*given)
        self.evaluator = ReportedEvaluations(self.spec)
        self.seen = StatusRecordReader(run.evaluation_map, Eval)
        self.handover = EvaluationHandover(self.spec, self.seen)
        self.handover.schema = MODEL

    def pass_on(self) -> int:
        """Let the gateway pass on what it may; how many wait."""
        self.handover.pass_on(self.queue)  # type: ignore[arg-type]  # all that it asks of it
        return len(self.queue.left)

    def restart_gateway(self) -> None:
        self.handover._record.close()
        if self.handover._models is not None:
            self.handover._models.close()
        self.handover = EvaluationHandover(self.spec, self.seen)
        self.handover.schema = MODEL

    def restart_evaluator(self) -> None:
        records = self.evaluator._records
        records._status.close()
        records._ended.close()
        self.evaluator = ReportedEvaluations(self.spec)

    def read_evaluation(self) -> Eval:
        self.evaluator.add_reported(self.evaluator._reported.read())
        return self.seen.read()


def test_evaluations_pass_one_by_one_and_the_best_keeps_its_model(tmp_path: Path) -> None:
    given = (checked(10, 5.0), checked(20, 9.0), checked(30, 7.0))
    passing = Passing(tmp_path, *given)
    assert passing.pass_on() == 2
    assert passing.pass_on() == 2  # until the evaluator has taken the first
    for left, version, best in ((2, 10, 10), (1, 20, 20), (0, 30, 20)):
        assert passing.pass_on() == left
        found = passing.read_evaluation()
        assert (found.version, found.best_version, found.played_by) == (version, best, "manager a")
    ended = StatusRecordReader(passing.spec.run.ended_evaluations_map, EndedEvaluations).read()
    assert [(one.version, one.best_version) for one in ended.newest] == [
        (10, 10),
        (20, 20),
        (30, 20),
    ]
    state, meta = read_state(passing.spec.run.best)
    assert (meta["version"], meta["return_mean"], meta["env_steps"]) == (20, 9.0, 7)
    assert meta["played_by"] == "manager a"
    assert state["model"]["w"].tolist() == [20.0, 20.0, 20.0]


def test_what_does_not_count_is_shown_and_changes_nothing_else(tmp_path: Path) -> None:
    passing = Passing(tmp_path, checked(10, 5.0), checked(20, 1e9, counts=False), checked(30, 4.0))
    passing.pass_on()
    before = passing.read_evaluation()
    passing.pass_on()
    found = passing.read_evaluation()
    assert (found.shown_return_mean, found.shown_version) == (1e9, 20)
    assert found.shown_by == "manager stranger"
    assert (found.return_mean, found.best_return_mean) == (5.0, before.best_return_mean)
    assert read_state(passing.spec.run.best)[1]["version"] == 10
    passing.pass_on()
    found = passing.read_evaluation()
    assert (found.version, found.shown_version) == (30, 20)


def test_an_evaluator_that_was_killed_takes_the_last_one_again(tmp_path: Path) -> None:
    passing = Passing(tmp_path, checked(10, 5.0), checked(20, 4.0))
    passing.pass_on()
    passing.restart_evaluator()  # before the first was taken
    assert passing.read_evaluation().version == 10
    passing.restart_evaluator()  # and after it: it does not know what it took
    assert passing.read_evaluation().version == 10
    ended = StatusRecordReader(passing.spec.run.ended_evaluations_map, EndedEvaluations).read()
    assert ended.count == 2  # the curves have it once: the version is the same
    assert passing.pass_on() == 0


def test_a_gateway_that_starts_again_waits_until_what_the_one_before_wrote_was_taken(
    tmp_path: Path,
) -> None:
    given = (checked(10, 5.0), checked(20, 9.0, counts=False), checked(30, 4.0), checked(40, 3.0))
    passing = Passing(tmp_path, *given)
    for left, version in ((3, 10), (2, 10), (1, 30)):
        assert passing.pass_on() == left
        passing.restart_gateway()
        assert passing.pass_on() == left, "the one before was not taken yet"
        assert passing.read_evaluation().version == version
        assert (found := passing.read_evaluation()).best_version == 10
    assert found.shown_version == 20
    passing.restart_gateway()  # of an evaluation that was taken
    assert passing.pass_on() == 0


def test_a_gateway_that_was_killed_between_a_model_and_its_record_goes_on(tmp_path: Path) -> None:
    passing = Passing(tmp_path, checked(10, 5.0), checked(20, 4.0))
    passing.pass_on()
    passing.read_evaluation()
    passing.handover._map().write_body(1, checked(20, 4.0).model.body)
    passing.restart_gateway()
    passing.restart_evaluator()  # it does not know what it took
    assert passing.pass_on() == 0
    assert passing.read_evaluation().version == 20


@pytest.mark.timeout(20)
@pytest.mark.parametrize("how", ["evaluated", "gateway ended", "not asked"])
def test_the_evaluator_ends_with_the_last_model_or_with_the_gateway(
    tmp_path: Path, how: str
) -> None:
    passing = Passing(tmp_path, checked(10, 5.0))
    run = passing.spec.run
    learning = TrainerStatus(opt_steps=10, phase="done", evaluates=how != "not asked")
    StatusRecordWriter(run.learning_map, TrainerStatus).write(learning)
    gateway = GatewayStatus(ended=how == "gateway ended")
    StatusRecordWriter(run.ingest_map, GatewayStatus).write(gateway)
    if how == "evaluated":
        passing.pass_on()
    passing.evaluator.run()
    assert passing.seen.read().version == (10 if how == "evaluated" else None)


class Written(TeeRecorder):
    """Remembers the returns that were written, and where."""

    def __init__(self) -> None:
        super().__init__()
        self.returns: list[tuple[str, float, int]] = []

    def write(self, record: Record, step: int) -> None:
        tags = ("eval/mean_reward", "eval/untrusted_mean_reward")
        self.returns += [(tag, record[tag], step) for tag in tags if tag in record]


def test_what_does_not_count_has_a_curve_of_its_own() -> None:
    recorder = Written()
    curves = CurveRecorder(recorder, "r", CONFIG)
    ingest = GatewayStatus(samples=Samples(50, inserted=50), env_steps=50)
    first = Eval(return_mean=5.0, version=10, env_steps=40, played_by="manager a")
    shown = {"shown_return_mean": 9.0, "shown_version": 20, "shown_by": "manager b"}
    both = Eval(return_mean=5.0, version=10, env_steps=40, played_by="manager a", **shown)  # type: ignore[arg-type]  # values of its fields
    ended = EndedEvaluations(1, (first,))
    for seen in (first, first, both, both):
        curves.record(0.0, TrainerStatus(), ingest, seen, ended)
    assert recorder.returns == [
        ("eval/mean_reward", 5.0, 40),
        ("eval/untrusted_mean_reward", 9.0, 50),
    ]


class FaultyEvaluation:
    """A `ModelEvaluation` of an environment whose values are not finite: no result counts."""

    confirms = False

    def __init__(self, *_: object, **__: object) -> None:
        self.status = Eval()
        self.ended = EndedEvaluations()
        self.played = list[int]()

    def is_due(self, epoch: int, version: int) -> bool:
        return False

    def is_newer(self, version: int) -> bool:
        return True

    def evaluate(self, epoch: int, model: ModelInfo, env_steps: int, **_: object) -> bool:
        assert not self.played, "it would fail again"
        self.played.append(model.version)
        return False

    def close(self) -> None:
        pass


def test_a_last_evaluation_that_does_not_count_is_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator, "ModelEvaluation", FaultyEvaluation)
    run = RunDirectory(tmp_path)
    run.make()
    ModelMapWriter(run.model_map, MODEL).write(1, ModelInfo(9, {"w": np.zeros(3, np.float32)}))
    done = TrainerStatus(epoch=1, phase="done", opt_steps=9)
    StatusRecordWriter(run.learning_map, TrainerStatus).write(done)
    process = EvaluatorProcess(LearnerSpec(run, "r", CONFIG, SPACES, Address()))
    process.run()
    assert process._evaluation.played == [9]  # type: ignore[attr-defined]  # the test's own


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("actors", "no manager that counts has evaluated the last model"),
        ("learner", "the last evaluation failed, or does not count"),
    ],
)
def test_the_end_says_why_the_last_model_has_no_evaluation(
    tmp_path: Path, where: str, why: str
) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    settings = CONFIG.evaluation.model_copy(update={"where": where})
    config = CONFIG.model_copy(update={"evaluation": settings})
    supervisor = Supervisor(
        LearnerSpec(run, run.ensure_id(), config, SPACES, Address()), None, on_loaded=lambda: None
    )
    done = TrainerStatus(epoch=1, phase="done", opt_steps=9, exit_reason="max_opts")
    learning = StatusRecordWriter(run.learning_map, TrainerStatus)
    seen = StatusRecordWriter(run.evaluation_map, Eval)
    found = []
    for evaluates, version in ((True, None), (True, 8), (True, 9), (False, 8)):
        learning.write(replace(done, evaluates=evaluates))
        seen.write(Eval(version=version))
        found.append(supervisor._missing_evaluation().partition(":")[0])
    assert found == [why, why, "", ""]
    learning.write(replace(done, evaluates=True, opt_steps=0))
    assert not supervisor._missing_evaluation()  # nothing was learned


def test_the_end_names_what_managers_say_of_their_evaluations(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    supervisor = supervisor_at_the_end(run, where="actors")
    why = "manager a cannot evaluate: RuntimeError: no display"
    StatusRecordWriter(run.ingest_map, GatewayStatus).write(GatewayStatus(unevaluated=why))
    said = f"no manager that counts has evaluated the last model ({why}): `vedette eval RUN"
    assert supervisor._missing_evaluation().startswith(said)


@pytest.mark.parametrize(
    ("confirming", "why"),
    [
        ("", "the last evaluation did not end within evaluation.end_timeout_s = 0 s"),
        (
            "version 9 is at the target",
            "the confirmation of an evaluation at the target did not end within "
            "evaluation.end_timeout_s = 0 s",
        ),
    ],
)
def test_the_end_says_what_its_time_did_not_suffice_for(
    tmp_path: Path, confirming: str, why: str
) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    supervisor = supervisor_at_the_end(run, end_timeout_s=0.0)
    StatusRecordWriter(run.evaluation_map, Eval).write(Eval(version=9, confirming=confirming))
    with child_process([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as evaluator:
        said = supervisor._wait_for_evaluation(evaluator, StopSignals(signals=()))
    assert said.startswith(why)


@pytest.mark.parametrize("reported", [True, False], ids=["by a manager", "by the learner"])
def test_a_stop_during_a_confirmation_is_said_as_one(tmp_path: Path, reported: bool) -> None:
    """ "the last evaluation was stopped", it said, though that had ended, at the target."""
    run = RunDirectory(tmp_path)
    run.make()
    supervisor = supervisor_at_the_end(run, end_timeout_s=60.0)
    if reported:
        StatusRecordWriter(run.ingest_map, GatewayStatus).write(GatewayStatus(confirms=True))
    else:
        hit = Eval(version=9, confirming="version 9 is at the target")
        StatusRecordWriter(run.evaluation_map, Eval).write(hit)
    stop = StopSignals(signals=())
    stop.request()
    with child_process([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as evaluator:
        said = supervisor._wait_for_evaluation(evaluator, stop)
    assert said.startswith("the confirmation of an evaluation at the target was stopped: ")


def test_a_gateway_that_ends_first_leaves_the_confirmation_to_be_said(tmp_path: Path) -> None:
    """It named a missing second environment instead."""
    run = RunDirectory(tmp_path)
    run.make()
    supervisor = supervisor_at_the_end(run, where="actors", end_timeout_s=7.0)
    StatusRecordWriter(run.ingest_map, GatewayStatus).write(GatewayStatus(confirms=True))
    assert supervisor._missing_evaluation().startswith(
        "the confirmation of an evaluation at the target did not end within "
        "evaluation.end_timeout_s = 7 s: "
    )


def supervisor_at_the_end(run: RunDirectory, **evaluation: Any) -> Supervisor:
    """A supervisor whose trainer has ended at `stop.max_opts`."""
    settings = CONFIG.evaluation.model_copy(update=evaluation)
    config = CONFIG.model_copy(update={"evaluation": settings})
    spec = LearnerSpec(run, run.ensure_id(), config, SPACES, Address())
    supervisor = Supervisor(spec, None, on_loaded=lambda: None)
    done = TrainerStatus(epoch=1, phase="done", opt_steps=9, exit_reason="max_opts")
    StatusRecordWriter(run.learning_map, TrainerStatus).write(replace(done, evaluates=True))
    return supervisor
