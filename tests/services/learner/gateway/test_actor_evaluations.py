"""Evaluations on the actors: who is asked, what is believed, and who is asked next."""

from __future__ import annotations

import math
import re
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import pytest

from vedette_protocol.messages import CONFIRM, EVALUATE, ActorReport, EvaluationReport, Report
from vedette_services.actors.actor_stats import RecentEpisodes
from vedette_services.config import RunConfig
from vedette_services.learner.gateway.actor_evaluations import (
    EVALUATION_FAILED_REST_S,
    NO_EVALUATOR_S,
    ActorEvaluations,
    PublishedModel,
)
from vedette_services.status.status import RETURNS_OF_ACTORS, Eval

RUN_ID = "a-run"
EPISODES = 4
INTERVAL = 100
TIMEOUT_S = 50.0
CONFIG = RunConfig.model_validate(
    {
        "env": {"id": "CartPole-v1"},
        "agent": {"name": "dqn"},
        "learner": {"eval_interval": INTERVAL},
        "evaluation": {"episodes": EPISODES, "episode_timeout_s": TIMEOUT_S},
    }
)
KEYS = {"a": "lab", "b": "lab", "stranger": "other"}
RESULT = {
    "episodes": EPISODES,
    "return_mean": 5.0,
    "return_std": 1.0,
    "return_min": 4.0,
    "return_max": 6.0,
    "length_mean": 5.0,
}


@dataclass
class Bench:
    """An `ActorEvaluations` with managers around it; "lab" is the trusted key."""

    now: float = 0.0
    lines: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    actors: dict[str, tuple[ActorReport, ...]] = field(default_factory=dict)
    config: InitVar[RunConfig] = CONFIG

    def __post_init__(self, config: RunConfig) -> None:
        self.state = ActorEvaluations(
            RUN_ID, config, first_request=7, log=lambda _, text: self.lines.append(text), now=0.0
        )
        self.state.trusted = {"lab"}

    def publish(self, version: int, epoch: int = 1) -> None:
        self.state.on_model(PublishedModel(epoch, version, 10 * version, b"body %d" % version))

    def report(
        self,
        manager: str,
        evaluation: EvaluationReport | None = None,
        *,
        key: str | None = None,
        **changes: Any,
    ) -> bool:
        """Have a manager report, which joins it."""
        if manager not in self.present:
            self.present.append(manager)
        told = Report(manager, 1, "host", "running", RUN_ID, *[0] * 6, evaluation=evaluation)
        does = {"features": (EVALUATE,), "actors": self.actors.get(manager, ()), **changes}
        told = replace(told, **does)
        return self.state.on_report(told, self.now, KEYS[manager] if key is None else key)

    def tick(self, seconds: float = 0.2) -> str:
        self.now += seconds
        return self.state.tick(self.now, self.present)

    def asked(self) -> tuple[str, int, int]:
        """Who is asked, the request and the least version."""
        for manager in self.present:
            request, version, _ = self.state.request_for(manager, 1)
            if request:
                return manager, request, version
        return "", 0, 0

    def answer(self, version: int | None = None, **found: Any) -> bool:
        """Have the asked manager report; without results it says what it plays."""
        manager, request, least = self.asked()
        epoch = found.pop("epoch", 1)
        features = found.pop("features", (EVALUATE,))
        told = EvaluationReport(request, epoch, least if version is None else version, **found)
        return self.report(manager, told, features=features)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_newest_model_is_asked_for_at_every_interval_and_its_results_are_of_its_version(
    bench: Bench,
) -> None:
    bench.publish(0)
    bench.report("a")
    bench.tick()
    assert bench.asked()[1] == 0  # nothing was learned yet
    bench.publish(96)
    bench.publish(104)
    assert bench.tick() == "a"
    assert bench.asked() == ("a", 8, 104)
    bench.publish(112)  # the manager has it already
    assert not bench.answer(112)
    bench.publish(120)
    bench.answer(112, episodes=2)
    assert "2 of 4 episodes of version 112" in bench.state.state
    assert bench.answer(112, **RESULT)
    finished = bench.state.pop_finished()
    assert finished is not None
    assert finished.counts
    assert (
        finished.evaluation.version,
        finished.evaluation.env_steps,
        finished.evaluation.return_mean,
    ) == (112, 1120, 5.0)
    assert finished.evaluation.played_by == "manager a"
    assert finished.model.body == b"body 112"
    bench.tick()
    assert bench.asked()[1] == 0
    bench.publish(200)
    bench.tick()
    assert bench.asked()[2] == 200


def test_nobody_is_asked_while_a_result_waits_to_be_taken(bench: Bench) -> None:
    bench.report("a")
    bench.publish(100)
    bench.tick()
    bench.answer(**RESULT)
    bench.publish(200)
    bench.tick()
    assert bench.asked()[1] == 0
    assert bench.state.pop_finished() is not None
    bench.tick()
    assert bench.asked()[2] == 200


@pytest.mark.parametrize(
    ("version", "found", "why"),
    [
        (99, RESULT, "version 99 of epoch 1 was not sent"),
        (101, RESULT, "version 101 of epoch 1 was not sent"),
        (100, RESULT | {"epoch": 2}, "of epoch 2 was not sent"),
        (100, RESULT | {"episodes": 3}, "results of 3 episodes of 4"),
        (100, RESULT | {"episodes": 5}, "5 episodes, after 0 and of 4"),
        (100, RESULT | {"return_mean": 6.5}, "a mean of 6.5"),
        (100, RESULT | {"return_std": -1.0}, "a mean of 5 ± -1"),
        (100, RESULT | {"return_max": None}, "not complete"),
        (100, RESULT | {"length_mean": 0.5}, "episodes of 0.5 steps"),
        (100, RESULT | {"cut": 5}, "5 of them cut"),
    ],
)
def test_a_report_that_is_not_as_asked_is_refused_and_another_manager_is_asked(
    bench: Bench, version: int, found: dict[str, Any], why: str
) -> None:
    bench.report("a")
    bench.publish(96)
    bench.publish(99)
    bench.publish(100)
    bench.tick()
    bench.report("b")
    assert bench.asked()[0] == "a"
    assert bench.answer(version, **found)
    assert bench.state.pop_finished() is None
    assert bench.state.refused == 1
    assert why in bench.lines[-1]
    assert "given to another manager" in bench.lines[-1]
    bench.tick()
    assert bench.asked()[0] == "b"


def test_an_evaluation_of_two_models_is_refused(bench: Bench) -> None:
    bench.report("a")
    bench.publish(100)
    bench.tick()
    bench.publish(104)
    bench.answer(100, episodes=1)
    assert bench.answer(104, **RESULT)
    assert "it plays version 104 after 100" in bench.lines[-1]


@pytest.mark.parametrize("change", ["request", "manager", "incarnation"])
def test_results_that_nobody_asked_for_are_ignored(bench: Bench, change: str) -> None:
    bench.report("a")
    bench.publish(100)
    bench.tick()
    bench.report("b")
    request = bench.asked()[1] + (change == "request")
    told = EvaluationReport(request, 1, 100, **RESULT)
    incarnation = 2 if change == "incarnation" else 1
    bench.report("b" if change == "manager" else "a", told, incarnation=incarnation)
    assert bench.state.pop_finished() is None


@pytest.mark.parametrize("how", ["gone", "draining", "silent"])
def test_the_evaluation_of_a_manager_that_dies_is_given_to_another(bench: Bench, how: str) -> None:
    bench.report("a")
    bench.publish(100)
    bench.tick()
    bench.answer(episodes=1)
    bench.report("b")
    if how == "draining":
        bench.report("a", state="draining")
    elif how == "silent":
        for _ in range(6):
            bench.tick(TIMEOUT_S / 4)
            bench.report("b")
            bench.report("a")  # alive, but no episode ends
    else:
        bench.present.remove("a")
    bench.tick()
    bench.tick()
    assert bench.asked()[0] == "b"
    assert "its evaluation is given to another manager" in "".join(bench.lines)
    bench.answer(**RESULT)
    assert bench.state.pop_finished() is not None


def test_a_manager_that_was_started_again_is_asked_at_once(bench: Bench) -> None:
    bench.report("a")
    bench.publish(100)
    bench.tick()
    bench.report("a", incarnation=2)
    bench.tick()
    assert bench.state.request_for("a", 1) == (0, 0, 0)
    assert bench.state.request_for("a", 2)[1] == 100


def test_an_evaluation_whose_episodes_end_in_time_may_take_long(bench: Bench) -> None:
    bench.report("a")
    bench.publish(100)
    bench.tick()
    for played in range(EPISODES):
        bench.answer(episodes=played)
        bench.tick(TIMEOUT_S - 1)
    assert bench.asked()[0] == "a"
    bench.answer(**RESULT)
    assert bench.state.pop_finished() is not None


def test_a_manager_that_cannot_play_says_why_and_is_asked_again_later(bench: Bench) -> None:
    bench.report("a")
    bench.publish(100)
    bench.tick()
    bench.answer(failed="RuntimeError: no display")
    assert "manager a cannot evaluate: RuntimeError: no display" in bench.lines[-1]
    assert bench.tick() == ""
    bench.report("a")
    bench.tick(EVALUATION_FAILED_REST_S)
    assert bench.asked()[0] == "a"


def test_evaluations_that_fail_on_all_managers_are_said_with_the_last_reason(bench: Bench) -> None:
    for manager in ("a", "b"):
        bench.report(manager)
    bench.publish(100)
    for told, missing in (
        ({"failed": "RuntimeError: no display"}, ""),  # the other one may play it
        (
            {"failed": "OSError: no licence"},
            "manager b cannot evaluate: OSError: no licence (and 1 more)",
        ),
    ):
        bench.tick()
        bench.answer(**told)
        assert bench.state.missing == missing
    assert bench.lines == [
        "manager a cannot evaluate: RuntimeError: no display: its evaluation is given to another "
        "manager",
        "manager b cannot evaluate: OSError: no licence: no other one plays it: it is asked again "
        "in 30 s",
    ]
    bench.tick(EVALUATION_FAILED_REST_S)
    assert bench.asked()[0] == "a"
    assert bench.state.missing, "until one ends well"
    bench.answer(**RESULT)
    assert bench.state.missing == ""
    bench.state.pop_finished()
    bench.publish(200)
    bench.tick()
    bench.answer(failed="OSError: no licence")
    assert bench.state.missing == "", "a has played the last one"


def test_an_evaluation_that_stands_still_on_the_one_manager_is_said(bench: Bench) -> None:
    bench.report("a")
    bench.publish(100)
    bench.tick()
    for _ in range(6):
        bench.tick(TIMEOUT_S / 4)
        bench.report("a")
    assert bench.state.missing == "manager a: no episode has ended for 50 s"
    bench.state.stop()
    bench.present.clear()
    bench.tick()
    assert bench.state.missing, "the end of the run says it"


def test_a_fresh_evaluation_that_fails_leaves_no_model_without_one() -> None:
    bench = confirming_bench()
    bench.answer(features=CONFIRMS["features"], **HIT)
    bench.answer(100, features=CONFIRMS["features"], failed="RuntimeError: no display")
    bench.tick()
    assert bench.state.pop_finished() is not None
    assert bench.state.missing == ""


@pytest.mark.parametrize(
    ("manager", "features", "why"),
    [
        ("a", (), r"no manager plays evaluations \(1 here: --no-evaluate, an own loop without"),
        (
            "stranger",
            (EVALUATE,),
            "evaluation.trusted names the key of no manager that plays evaluations",
        ),
    ],
)
def test_a_model_that_no_manager_ever_plays_is_said(
    bench: Bench, manager: str, features: tuple[str, ...], why: str
) -> None:
    for _ in range(3):
        bench.report(manager, features=features)
        bench.tick(NO_EVALUATOR_S)
    assert bench.state.missing == "", "nothing was learned"
    for version in (100, 200):
        bench.publish(version)
        bench.tick()
        assert re.match(why, bench.state.missing)
        if features:
            bench.answer(**RESULT)
            bench.state.pop_finished()
            bench.tick()
        assert re.match(why, bench.state.missing)
    assert bench.lines.count(bench.state.missing) == 1, "it is logged once"
    bench.report("a")
    bench.tick()
    assert bench.state.missing == ""


def test_that_no_manager_is_here_is_said_at_the_end_alone(bench: Bench) -> None:
    """Before it, what the learner waits for says so."""
    bench.publish(100)
    bench.tick(3 * NO_EVALUATOR_S)
    assert bench.state.missing == ""
    bench.state.finish_with(100)
    bench.tick()
    assert bench.state.missing == "no manager is here that plays evaluations"


def test_managers_take_turns(bench: Bench) -> None:
    bench.report("a")
    bench.report("b")
    asked = []
    for version in range(100, 500, 100):
        bench.publish(version)
        bench.tick()
        asked.append(bench.asked()[0])
        bench.answer(**RESULT)
        bench.state.pop_finished()
    assert asked == ["a", "b", "a", "b"]


def test_what_an_untrusted_manager_reports_is_shown_and_does_not_count(bench: Bench) -> None:
    bench.report("stranger")
    bench.publish(100)
    bench.tick()
    assert bench.asked()[0] == "stranger"
    bench.answer(**RESULT | {"return_mean": 1e9, "return_max": 2e9})
    found = bench.state.pop_finished()
    assert found is not None
    assert not found.counts
    assert "evaluation.trusted names" in bench.lines[0]
    bench.report("a")  # a trusted one comes: the version is still to be evaluated
    bench.tick()
    assert bench.asked()[0] == "a"


def test_an_untrusted_manager_that_never_ends_is_left_when_a_trusted_one_comes(
    bench: Bench,
) -> None:
    bench.report("stranger")
    bench.publish(100)
    bench.tick()
    bench.answer(episodes=1)
    bench.report("a")
    bench.tick()
    assert bench.asked()[0] == "a"


def test_an_untrusted_manager_is_not_asked_while_a_trusted_one_plays(bench: Bench) -> None:
    bench.report("stranger")
    bench.report("a")
    for version in range(100, 400, 100):
        bench.publish(version)
        bench.tick()
        assert bench.asked()[0] == "a"
        bench.answer(**RESULT)
        bench.state.pop_finished()


def test_without_keys_on_loopback_every_manager_counts(bench: Bench) -> None:
    bench.state.trusted = None
    bench.report("stranger", key="")
    bench.publish(100)
    bench.tick()
    bench.answer(**RESULT)
    found = bench.state.pop_finished()
    assert found is not None
    assert found.counts


def test_a_manager_without_the_feature_is_never_asked(bench: Bench) -> None:
    bench.report("a", features=("another",))
    bench.publish(100)
    assert bench.tick() == ""


def test_another_epoch_ends_what_was_asked_and_its_model_is_evaluated(bench: Bench) -> None:
    bench.report("a")
    bench.publish(500)
    bench.tick()
    first = bench.asked()[1]
    bench.publish(300, epoch=2)
    bench.tick()
    manager, request, version = bench.asked()
    assert (manager, version) == ("a", 300)
    assert request != first
    bench.answer(epoch=2, **RESULT)
    found = bench.state.pop_finished()
    assert found is not None
    assert found.model.epoch == 2


def test_models_that_a_slow_manager_may_have_taken_are_kept_within_a_bound(bench: Bench) -> None:
    bench.report("a")
    big = bytes(20 << 20)
    for version in range(100, 120):
        bench.state.on_model(PublishedModel(1, version, 0, big))
        bench.tick()
    assert len(bench.state._held) == 3
    assert bench.answer(100)
    assert "or too long ago" in bench.lines[-1]


def test_the_last_model_is_asked_for_though_it_is_not_due(bench: Bench) -> None:
    bench.report("a")
    bench.publish(100)
    bench.tick()
    bench.answer(**RESULT)
    bench.state.pop_finished()
    bench.publish(130)
    assert bench.tick() == ""
    bench.state.finish_with(130)
    bench.tick()
    assert bench.asked()[2] == 130
    assert not bench.state.is_hopeless(bench.now)


def test_nobody_is_asked_once_the_learner_ends(bench: Bench) -> None:
    bench.report("a")
    bench.publish(100)
    bench.tick()
    bench.state.stop()
    assert bench.asked()[1] == 0
    bench.report("a", state="gone")
    assert bench.tick() == ""
    assert bench.lines == []


def test_without_evaluators_the_returns_of_trusted_managers_actors_count(bench: Bench) -> None:
    def play(episodes: int) -> None:
        for manager, mean in (("a", 40.0), ("stranger", 900.0)):
            bench.actors[manager] = (of_episodes([mean] * episodes),)
            bench.report(manager, features=())

    play(3)
    bench.publish(100)
    for ended in (4, 5, 6):
        bench.tick(NO_EVALUATOR_S)
        play(ended)
    bench.tick()
    assert bench.state.pop_finished() is None  # 3 episodes since the first report
    play(7)
    bench.tick()
    finished = bench.state.pop_finished()
    assert finished is not None
    assert (finished.evaluation.return_mean, finished.evaluation.episodes) == (40.0, EPISODES)
    assert (finished.evaluation.played_by, finished.counts) == (RETURNS_OF_ACTORS, True)
    assert bench.state.missing == "", "these take the place of an evaluation"
    assert "the returns of the actors" in bench.lines[-1]
    assert bench.state.is_hopeless(bench.now)
    play(20)
    bench.tick()
    assert bench.state.pop_finished() is None  # the next one is not due yet
    bench.publish(150)
    bench.tick()
    assert bench.state.missing == ""
    for _ in range(2):  # the returns so far suffice for one
        bench.state.finish_with(150)
        bench.tick()
        bench.state.pop_finished()
    assert bench.state.missing.startswith("no manager plays evaluations (2 here"), "at the end"


def of_episodes(returns: list[float], *, says_sum: bool = True, restarts: int = 0) -> ActorReport:
    """What an actor reports that has ended these episodes since its manager's start."""
    tally = RecentEpisodes()
    tally.add((value, 40) for value in returns)
    mean, length = tally.return_mean, tally.length_mean
    report = ActorReport(0, True, restarts, 0, tally.episodes, 100, mean, length)
    if not says_sum:
        return report
    return replace(report, returns=tally.returns, return_sum=tally.return_sum)


def evaluate_returns(bench: Bench) -> Eval | None:
    """The evaluation that the actors' returns so far make, if they do."""
    bench.publish(100)
    bench.tick(2 * NO_EVALUATOR_S)
    finished = bench.state.pop_finished()
    return None if finished is None else finished.evaluation


@pytest.mark.parametrize("before", [0.0, 500.0])
def test_the_returns_of_actors_are_of_the_new_episodes_alone(before: float) -> None:
    bench = Bench()
    episodes = [before] * 200
    for new in ([], [100.0], [110.0], [], [math.inf, 120.0], [130.0]):
        episodes += new
        bench.actors["a"] = (of_episodes(episodes),)
        bench.report("a", features=())
    found = evaluate_returns(bench)
    assert found is not None
    assert (found.return_mean, found.episodes) == (115.0, 4)


def test_a_mean_without_a_sum_counts_once_all_of_its_episodes_are_new(bench: Bench) -> None:
    episodes = [500.0] * 200

    def play(new: int, restarts: int = 0) -> None:
        episodes.extend([10.0] * new)
        told = of_episodes(episodes, says_sum=False, restarts=restarts)
        bench.actors["a"] = (told,)
        bench.report("a", features=())

    for new in (0, 20, 79):
        play(new)
    assert evaluate_returns(bench) is None
    play(0, restarts=1)  # the mean of another process is over its own episodes, which are fewer
    play(99, restarts=1)
    assert evaluate_returns(bench) is None
    play(1, restarts=1)
    found = evaluate_returns(bench)
    assert found is not None
    assert (found.return_mean, found.episodes) == (10.0, 100)


def test_returns_of_actors_do_not_count_while_an_evaluator_was_here_a_moment_ago(
    bench: Bench,
) -> None:
    bench.report("a")
    bench.actors["b"] = (of_episodes([]),)
    bench.report("b", features=())
    bench.present.remove("a")
    bench.actors["b"] = (of_episodes([40.0] * 50),)
    bench.report("b", features=())
    bench.publish(100)
    bench.tick(NO_EVALUATOR_S / 2)
    assert bench.state.pop_finished() is None
    bench.tick(NO_EVALUATOR_S)
    assert bench.state.pop_finished() is not None


def test_nothing_is_asked_where_the_learner_evaluates() -> None:
    bench = Bench()
    bench.state = ActorEvaluations(RUN_ID, None, first_request=0, log=lambda *_: None, now=0.0)
    bench.report("a")
    bench.publish(100)
    assert bench.tick() == ""


CONFIRMS = {"features": (EVALUATE, CONFIRM)}
HIT = {**RESULT, "return_mean": 5.5}


def confirming_bench() -> Bench:
    """One whose target is 5.5, and two fresh evaluations confirm it."""
    stop = CONFIG.stop.model_copy(update={"target_return": 5.5})
    evaluation = CONFIG.evaluation.model_copy(update={"confirm": 2})
    config = CONFIG.model_copy(update={"stop": stop, "evaluation": evaluation})
    bench = Bench(config=config)
    bench.report("a", **CONFIRMS)
    bench.publish(100)
    bench.tick()
    return bench


def test_a_hit_is_confirmed_by_the_same_manager_on_the_same_model() -> None:
    bench = confirming_bench()
    bench.answer(features=CONFIRMS["features"], **HIT)
    assert bench.state.pop_finished() is None
    bench.publish(200)
    first = bench.state.request_for("a", 1)
    assert (first.version, first.fresh) == (100, 1)
    assert "0 of 4 fresh episodes of version 100" in bench.state.state
    bench.answer(features=CONFIRMS["features"], **HIT)
    second = bench.state.request_for("a", 1)
    assert (second.version, second.fresh) == (100, 2)
    assert second.number not in (first.number, 0)
    bench.answer(features=CONFIRMS["features"], **HIT)
    finished = bench.state.pop_finished()
    assert finished is not None
    found = finished.evaluation
    assert (found.version, found.reached_return_mean, found.reached_episodes) == (100, 5.5, 8)
    assert (found.fresh_return_std, found.fresh_episodes, found.fresh_episodes_cut) == (1.0, 8, 0)
    assert finished.model.body == b"body 100"
    bench.tick()
    assert bench.asked()[2] == 200


def test_fresh_episodes_below_the_target_end_no_run_and_rank_the_model() -> None:
    bench = confirming_bench()
    bench.answer(features=CONFIRMS["features"], **HIT)
    bench.answer(features=CONFIRMS["features"], **RESULT)
    finished = bench.state.pop_finished()
    assert finished is not None
    found = finished.evaluation
    assert (found.return_mean, found.best_return_mean, found.reached_return_mean) == (
        5.5,
        5.0,
        None,
    )
    assert "fresh episodes: the run goes on" in bench.lines[-1]


def test_another_model_confirms_nothing() -> None:
    bench = confirming_bench()
    bench.publish(200)
    bench.answer(100, features=CONFIRMS["features"], **HIT)
    bench.answer(200, features=CONFIRMS["features"], **HIT)
    assert bench.state.refused == 1
    bench.tick()
    finished = bench.state.pop_finished()
    assert finished is not None
    assert finished.evaluation.reached_return_mean is None


def test_a_manager_that_is_gone_confirms_nothing_and_the_evaluation_stays() -> None:
    bench = confirming_bench()
    bench.answer(features=CONFIRMS["features"], **HIT)
    bench.present.clear()
    bench.tick()
    bench.tick()
    finished = bench.state.pop_finished()
    assert finished is not None
    found = finished.evaluation
    assert (found.version, found.return_mean, found.reached_return_mean) == (100, 5.5, None)


def test_a_manager_of_an_earlier_release_ends_the_run_unconfirmed() -> None:
    bench = confirming_bench()
    bench.answer(**HIT)
    finished = bench.state.pop_finished()
    assert finished is not None
    found = finished.evaluation
    assert (found.reached_return_mean, found.reached_episodes) == (5.5, 0)
    assert "of an earlier version: it plays no fresh episodes" in bench.lines[-1]


def test_the_last_model_of_a_run_is_evaluated_and_not_confirmed() -> None:
    """The end waits for it."""
    bench = confirming_bench()
    bench.state.finish_with(100)
    bench.answer(features=CONFIRMS["features"], **HIT)
    finished = bench.state.pop_finished()
    assert finished is not None
    assert (finished.evaluation.return_mean, finished.evaluation.reached_return_mean) == (5.5, None)


def test_a_confirmation_is_known_as_one_also_when_the_end_has_cut_it_off() -> None:
    bench = confirming_bench()
    assert not bench.state.confirms
    bench.answer(features=CONFIRMS["features"], **HIT)
    assert bench.state.confirms
    bench.state.stop()
    bench.tick()
    assert bench.state.confirms
    assert bench.state.pop_finished() is None
