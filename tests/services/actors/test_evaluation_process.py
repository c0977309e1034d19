"""Evaluations on an actor host: what the state orders and reports, and the process that plays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_learner import a_model as a_model_of
from fake_learner import a_run, wait_for
from manager_rig import RUN, Rig, a_model, last_report, logged_text, of

from vedette_protocol.messages import CONFIRM, EVALUATE, EvaluationReport, Run
from vedette_protocol.model import pack_model
from vedette_services.actors.evaluation_process import EvaluationProcess
from vedette_services.actors.instructions import (
    Instruction,
    PlayEvaluation,
    SendReport,
    StopEvaluation,
    StoreModel,
)
from vedette_services.actors.manager_state import Identity, ManagerState

ASKED = {"evaluate": 55, "evaluate_version": 10}


def asked(rig: Rig, version: int = 10) -> list[Instruction]:
    """Have the newest model and be asked to evaluate."""
    rig.state.on_model(a_model(version), rig.now)
    return rig.ack(**ASKED)


DONE = EvaluationReport(55, 1, 10, 4, 5.0, 1.0, 4.0, 6.0, 5.0)


def test_the_newest_model_is_played_and_named_at_once() -> None:
    rig = Rig().joined()
    ordered = asked(rig, version=12)
    (play,) = of(PlayEvaluation, ordered)
    assert (play.request, play.model.version) == (55, 12)
    assert last_report(ordered).evaluation == EvaluationReport(55, 1, 12)
    rig.state.on_model(a_model(20), rig.now)
    assert of(PlayEvaluation, rig.ack(**ASKED)) == []  # the request is repeated
    assert last_report(rig.state.send_report(rig.now)).evaluation == EvaluationReport(55, 1, 12)


def test_an_evaluation_waits_for_a_model_that_is_new_enough() -> None:
    rig = Rig().joined()
    rig.state.on_model(a_model(9), rig.now)
    assert of(PlayEvaluation, rig.ack(**ASKED)) == []
    assert last_report(rig.state.send_report(rig.now)).evaluation is None
    (play,) = of(PlayEvaluation, rig.state.on_model(a_model(11), rig.now))
    assert play.model.version == 11


def test_results_are_reported_at_once_and_again_until_another_ack() -> None:
    rig = Rig().joined()
    asked(rig)
    assert rig.state.on_evaluation(replace(DONE, return_mean=None), rig.now) == []
    told = rig.state.on_evaluation(DONE, rig.now)
    assert last_report(told).evaluation == DONE
    assert last_report(rig.state.send_report(rig.now)).evaluation == DONE
    idle = rig.ack(evaluate=0)
    assert of(StopEvaluation, idle) == []  # the process stays for the next one
    assert last_report(rig.state.send_report(rig.now)).evaluation is None


def test_a_fresh_evaluation_plays_the_last_model_again_on_other_episodes() -> None:
    rig = Rig().joined()
    asked(rig)
    rig.state.on_evaluation(DONE, rig.now)
    rig.state.on_model(a_model(20), rig.now)
    ordered = rig.ack(evaluate=56, evaluate_version=10, evaluate_fresh=3)
    (play,) = of(PlayEvaluation, ordered)
    assert (play.request, play.model.version, play.fresh) == (56, 10, 3)
    assert last_report(ordered).evaluation == EvaluationReport(56, 1, 10)
    assert CONFIRM in last_report(ordered).features


def test_a_model_that_was_not_played_here_is_not_confirmed_here() -> None:
    rig = Rig().joined()
    rig.state.on_model(a_model(20), rig.now)
    ordered = rig.ack(evaluate=56, evaluate_version=10, evaluate_fresh=1)
    assert of(PlayEvaluation, ordered) == []
    told = last_report(rig.state.send_report(rig.now)).evaluation
    assert told is not None
    assert told.failed == "the model of version 10 is not here any more"


def test_another_request_ends_the_one_that_is_played() -> None:
    rig = Rig().joined()
    asked(rig)
    ordered = rig.ack(evaluate=56, evaluate_version=10)
    kinds = [type(x) for x in ordered if isinstance(x, StopEvaluation | PlayEvaluation)]
    assert kinds == [StopEvaluation, PlayEvaluation]
    assert rig.state.on_evaluation(DONE, rig.now) == []  # of the first
    assert last_report(rig.state.send_report(rig.now)).evaluation == EvaluationReport(56, 1, 10)


def test_a_request_of_a_start_of_the_learner_that_was_not_announced_is_not_for_us() -> None:
    rig = Rig().joined()
    rig.state.on_model(a_model(12), rig.now)
    assert of(PlayEvaluation, rig.ack(**ASKED, epoch=2)) == []
    assert of(PlayEvaluation, rig.ack(**ASKED, learner=78)) == []


def test_a_process_that_ends_by_itself_is_reported_and_logged() -> None:
    rig = Rig().joined()
    asked(rig)
    told = rig.state.on_evaluation(
        EvaluationReport(55, 1, 10, failed="RuntimeError: no display"), rig.now
    )
    evaluation = last_report(told).evaluation
    assert evaluation is not None
    assert evaluation.failed == "RuntimeError: no display"
    assert "the evaluation of version 10 failed: RuntimeError: no display" in logged_text(told)
    assert of(PlayEvaluation, rig.ack(**ASKED)) == []


def test_another_run_ends_the_evaluation() -> None:
    rig = Rig().joined()
    asked(rig)
    joined = rig.state.on_control(replace(rig.run, run_id="r2", learner=79), 1.0)
    assert of(StopEvaluation, joined) == [StopEvaluation()]
    assert last_report(rig.state.send_report(1.0)).evaluation is None


def test_a_learner_that_is_back_with_other_evaluations_has_them_played() -> None:
    rig = Rig().joined()
    asked(rig)
    back = replace(rig.run, learner=79, evaluation={"episodes": 3})
    assert of(StopEvaluation, rig.state.on_control(back, 1.0)) == [StopEvaluation()]
    rig.state.on_model(a_model(20), 1.0)
    (play,) = of(PlayEvaluation, rig.ack(learner=79, **ASKED))
    assert play.run == back


def test_a_host_that_plays_no_evaluations_says_so_and_ignores_requests() -> None:
    rig = Rig()
    assert last_report(rig.state.on_connected(0.0)).features == (EVALUATE, CONFIRM)
    rig.state = ManagerState(
        Identity("m1", "host", "far:5555"),
        count=1,
        allow_import=(),
        incarnation=lambda: 100,
        jitter=lambda: 0.5,
        now=0.0,
        evaluates=False,
    )
    rig.joined()
    assert of(SendReport, rig.state.send_report(0.0))[0].report.features == ()
    assert of(PlayEvaluation, asked(rig)) == []


# The process


def model_for(run: Run, version: int) -> StoreModel:
    return StoreModel(1, version, bytearray(pack_model(version, a_model_of(run), run.model)))


SETTINGS = {"episodes": 6, "seed": 5, "max_episode_steps": 30}


def test_the_process_plays_one_model_after_another_and_reports_its_progress(
    tmp_path: Path,
) -> None:
    run = replace(a_run(), evaluation=SETTINGS)
    process = EvaluationProcess(run, tmp_path)
    seen = list[EvaluationReport]()
    try:
        for request, version in ((8, 100), (9, 104)):
            process.play(PlayEvaluation(run, request, model_for(run, version)))
            while not seen or seen[-1].request != request or seen[-1].return_mean is None:
                seen.append(wait_for(process.progress))
    finally:
        process.kill(5.0)
    first, last = (found for found in seen if found.return_mean is not None)
    assert (first.request, first.version, first.episodes) == (8, 100, 6)
    assert (last.request, last.version) == (9, 104)
    assert first.return_mean == last.return_mean  # the same weights, the same episodes
    assert first.return_min is not None
    assert first.return_max is not None
    assert first.return_mean is not None
    assert first.return_min <= first.return_mean <= first.return_max <= 30.0
    assert np.isclose(first.return_mean, first.length_mean or 0.0)  # a reward of 1 a step
    played = [found.episodes for found in seen if found.request == 8]
    assert played == sorted(played)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"id": "nowhere:Env"}, "cannot make environment 'nowhere:Env'"),
        (
            {
                "id": "CartPole-v1",
                "observation": {"space": "box", "shape": [3]},
                "action": {"space": "discrete", "n": 2},
            },
            "env.observation declares",
        ),
    ],
)
def test_a_process_that_cannot_play_says_why(
    tmp_path: Path, env: dict[str, object], why: str
) -> None:
    run = replace(a_run(), env=env, evaluation=SETTINGS)
    process = EvaluationProcess(run, tmp_path)
    try:
        process.play(PlayEvaluation(run, 8, model_for(run, 100)))
        found = wait_for(process.progress)
    finally:
        process.kill(5.0)
    assert (found.request, found.version) == (8, 100)
    assert why in found.failed


def test_actors_go_on_where_only_the_evaluations_of_a_run_change() -> None:
    rig = Rig().joined()
    back = replace(RUN, learner=79, evaluation=SETTINGS)
    assert "the actors go on" in logged_text(rig.state.on_control(back, 1.0))
