"""A hit of the target is confirmed on fresh episodes of the same model, or the run goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configurations import configured

from vedette_rl.core import Evaluation, ModelInfo
from vedette_rl.storage.state_file import check_state
from vedette_services.config import RunConfig
from vedette_services.learner import evaluator
from vedette_services.learner.confirmation import begin_confirmation, mark_reached
from vedette_services.learner.evaluator import ModelEvaluation
from vedette_services.run.status_files import read_best
from vedette_services.status.status import Eval, Status, StopStatus
from vedette_services.status.stop_conditions import (
    describe_exit,
    describe_outcome,
    ended_status,
    find_exit_reason,
    is_over,
    reached_condition,
)
from vedette_services.status.text import summary_lines, target_text

HIT = Eval(version=40, return_mean=480.0, episodes=20)


def config_of(confirm: int = 5, target: float = 475.0) -> RunConfig:
    table = {
        "preset": "none",
        "env": {"id": "CartPole-v1"},
        "agent": {"name": "dqn"},
        "evaluation": {"confirm": confirm, "episodes": 20},
        "stop": {"target_return": target},
    }
    return configured(table=table)


@pytest.mark.parametrize(
    ("means", "confirmed", "mean"),
    [
        ((476.0, 478.0, 480.0, 476.0, 477.0), True, 477.4),
        ((474.0,), False, 474.0),  # the first is below: no other is played
        ((490.0, 450.0), False, 470.0),
        ((475.0,) * 5, True, 475.0),
    ],
)
def test_the_mean_of_fresh_episodes_stays_at_the_target_after_each_evaluation(
    means: tuple[float, ...], confirmed: bool, mean: float
) -> None:
    confirmation = begin_confirmation(HIT, config_of())
    assert confirmation is not None
    for value in means:
        assert not confirmation.is_over
        confirmation.add(Eval(return_mean=value, episodes=20))
    assert (confirmation.is_over, confirmation.is_confirmed) == (True, confirmed)
    result = confirmation.result()
    assert result.best_return_mean == pytest.approx(mean)  # it is ranked by fresh episodes alone
    assert result.reached_return_mean == (pytest.approx(mean) if confirmed else None)
    assert result.reached_episodes == (100 if confirmed else None)


def test_repeated_testing_rarely_ends_a_run_below_its_target() -> None:
    """Models of a true mean of 465, evaluated 400 times: without confirmation nearly every run of
    them ends at a target of 475."""
    rng = np.random.default_rng(0)

    def ends(confirm: int) -> bool:
        config = config_of(confirm)
        for _ in range(400):
            played = rng.normal(465.0, 40.0, 20).mean()
            hit = replace(HIT, return_mean=float(played))
            confirmation = begin_confirmation(hit, config)
            if confirmation is None:
                if mark_reached(hit, config).reached_return_mean is not None:
                    return True
                continue
            while not confirmation.is_over:
                mean = float(rng.normal(465.0, 40.0, 20).mean())
                confirmation.add(Eval(return_mean=mean, episodes=20))
            if confirmation.is_confirmed:
                return True
        return False

    assert sum(ends(0) for _ in range(40)) == 40
    assert sum(ends(5) for _ in range(40)) <= 6


def test_a_return_below_the_target_and_a_run_without_one_have_nothing_to_confirm() -> None:
    assert begin_confirmation(replace(HIT, return_mean=474.9), config_of()) is None
    assert begin_confirmation(HIT, config_of(confirm=0)) is None
    assert mark_reached(HIT, config_of(confirm=0)).reached_episodes == 0


def test_fresh_episodes_are_neither_those_of_evaluations_nor_of_one_another() -> None:
    settings = config_of().evaluation
    begins = [settings.fresh_seed(number) for number in range(200)]
    played = {seed + k for seed in begins for k in range(20)}
    assert len(played) == 200 * 20
    assert not played & set(range(settings.seed, settings.seed + 20))
    assert not played & set(range(settings.seed + 1_000_000, settings.seed + 1_000_020))


def test_the_seeds_that_evaluations_and_fresh_ones_play_are_known() -> None:
    settings = config_of().evaluation
    first = settings.fresh_seed(0)
    for number in (0, 1, 24_999, 25_000):
        assert settings.plays(settings.fresh_seed(number), 1, fresh=True)
    assert not settings.plays(first, 500_000, fresh=False)
    assert not settings.plays(first - 5, 5, fresh=True)
    assert settings.plays(first - 5, 6, fresh=True)
    assert not settings.plays(first + 500_000, 20, fresh=True)
    assert settings.plays(settings.seed + 19, 1, fresh=False)
    assert not settings.plays(settings.seed + 20, 1, fresh=False)


class Played:
    """Plays what a test says: means by seed of the first episode; None: the run's own episodes."""

    def __init__(self, *means: float) -> None:
        self.means = list(means)
        self.seeds: list[int | None] = []

    def __call__(self, *_: object, **__: object) -> Played:
        return self

    def open(self) -> None:
        """Nothing is made."""

    def close(self) -> None:
        """Nothing is open."""

    def evaluate(
        self, _: object, version: int, *, seed: int | None = None, **__: object
    ) -> Evaluation:
        self.seeds.append(seed)
        mean = self.means.pop(0)
        return Evaluation(version, (mean - 1, mean + 1), (9, 9), seed or 0, 500, 0)


def evaluation_of(
    monkeypatch: pytest.MonkeyPatch, best: Path, played: Played, **how: Any
) -> ModelEvaluation:
    monkeypatch.setattr(evaluator, "GreedyEvaluator", played)
    monkeypatch.setattr(evaluator, "build_greedy_policy", lambda *_: Policy())
    return ModelEvaluation(config_of(**how), (), "run", best)  # type: ignore[arg-type]  # unused


class Policy:
    def sync_model(self, model: ModelInfo) -> None:
        """Nothing is played."""


def model(version: int) -> ModelInfo:
    return ModelInfo(version, {"w": np.full(1, version, np.float32)})


def play(evaluation: ModelEvaluation, version: int) -> Eval:
    evaluation.evaluate(1, model(version), 10 * version)
    while evaluation.confirms:
        evaluation.confirm()
    return evaluation.status


def test_the_best_model_is_the_confirmed_one_and_luck_is_ranked_by_fresh_episodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    best = tmp_path / "best"
    played = Played(400.0, 500.0, 410.0, 476.0, 480.0, 478.0)
    evaluation = evaluation_of(monkeypatch, best, played, confirm=2)
    play(evaluation, 40)
    lucky = play(evaluation, 80)  # 500, and then 410 on fresh episodes
    assert (lucky.return_mean, lucky.best_return_mean, lucky.reached_return_mean) == (
        500.0,
        410.0,
        None,
    )
    assert (lucky.fresh_return_mean, lucky.fresh_episodes, lucky.unconfirmed) == (410.0, 2, 1)
    found = play(evaluation, 120)
    assert (found.fresh_return_mean, found.fresh_episodes, found.unconfirmed) == (479.0, 4, 1)
    assert (found.best_version, found.reached_version, found.reached_episodes) == (120, 120, 4)
    assert found.reached_return_mean == found.best_return_mean == 479.0
    assert found.confirming == ""
    assert played.seeds[0] is played.seeds[1] is played.seeds[3] is None
    fresh = [seed for seed in played.seeds if seed is not None]
    assert len(set(fresh)) == 3
    kept = read_best(best)
    assert (kept.best_version, kept.reached_return_mean, kept.reached_episodes) == (120, 479.0, 4)


def test_the_header_of_the_best_model_is_of_the_episodes_that_it_is_ranked_by(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The mean of one sample beside the deviation of another was no evaluation at all."""

    def header(*means: float) -> tuple[Any, ...]:
        best = tmp_path / "-".join(map(str, means))
        play(evaluation_of(monkeypatch, best, Played(*means), confirm=2), 40)
        kept = check_state(best)
        assert "seed" in kept or kept["fresh"], "fresh episodes are of several seeds"
        names = ("return_mean", "return_std", "episodes", "episodes_cut", "fresh")
        return tuple(kept[name] for name in names)

    assert header(400.0) == (400.0, 1.0, 2, 0, False)
    assert header(500.0, 410.0) == (410.0, 1.0, 2, 0, True)
    confirmed = header(500.0, 480.0, 486.0)
    std = float(np.std([479.0, 481.0, 485.0, 487.0]))
    assert confirmed == (483.0, pytest.approx(std), 4, 0, True)


def test_a_deviation_that_no_fresh_evaluation_names_is_not_known() -> None:
    confirmation = begin_confirmation(HIT, config_of())
    assert confirmation is not None
    confirmation.add(Eval(return_mean=480.0, return_std=1.0, episodes=20, episodes_cut=1))
    assert (confirmation.result().fresh_return_std, confirmation.result().fresh_episodes_cut) == (
        pytest.approx(1.0),
        1,
    )
    confirmation.add(Eval(return_mean=480.0, episodes=20))
    assert (confirmation.result().fresh_return_std, confirmation.result().fresh_episodes_cut) == (
        None,
        None,
    )


def test_what_is_being_confirmed_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    evaluation = evaluation_of(monkeypatch, tmp_path, Played(480.0, 478.0, 400.0))
    evaluation.evaluate(1, model(40), 400)
    assert evaluation.status.confirming == (
        "version 40 is at the target (480.0): fresh evaluation 1 of 5 is played"
    )
    assert evaluation.status.best_return_mean is None  # not before it is confirmed
    evaluation.confirm()
    assert "fresh evaluation 2 of 5" in evaluation.status.confirming
    evaluation.confirm()
    assert (evaluation.confirms, evaluation.status.confirming) == (False, "")
    assert evaluation.status.best_return_mean == 439.0


def test_a_run_ends_and_is_solved_by_what_was_confirmed_alone() -> None:
    stop = config_of().stop
    assert find_exit_reason(stop, 1, 1, 1.0, None) == ""
    assert find_exit_reason(stop, 1, 1, 1.0, 475.0) == "target_return"
    found = Eval(best_return_mean=480.0, reached_return_mean=478.0, reached_episodes=100)
    solved = Status(exit_reason="target_return", eval=found)
    assert describe_outcome(solved) == "solved"
    assert describe_exit(solved).endswith("confirmed on 100 fresh episodes")
    lucky = replace(solved, eval=replace(found, reached_episodes=0))
    assert describe_outcome(lucky) == "done"


def test_a_confirmation_that_was_given_up_says_nothing_of_luck() -> None:
    confirmation = begin_confirmation(HIT, config_of())
    assert confirmation is not None
    confirmation.add(Eval(return_mean=476.0, episodes=20))
    result = confirmation.result()
    assert (result.unconfirmed, result.reached_return_mean) == (0, None)
    stop = StopStatus(target_return=475.0)
    ended = describe_exit(Status(exit_reason="max_seconds", stop=stop, eval=result))
    assert ended.endswith(
        "an evaluation of 476.0 is at the target return of 475, and was not "
        "confirmed on fresh episodes"
    )


LUCKY = Eval(
    version=40,
    return_mean=478.5,
    return_std=2.0,
    fresh_return_mean=470.2,
    fresh_episodes=20,
    unconfirmed=1,
    best_return_mean=470.2,
    best_version=40,
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "an evaluation was at the target return of 475, but fresh episodes of the same model "
            "were below it (478.5, then 470.2)",
        ),
        (
            {"unconfirmed": 3},
            "3 evaluations were at the target return of 475, but fresh episodes of the same models "
            "were below it (the last: 478.5, then 470.2)",
        ),
        (
            {"return_mean": 400.0, "fresh_return_mean": None, "fresh_episodes": None},
            "an evaluation was at the target return of 475, but fresh episodes of the same model "
            "were below it",
        ),
        (
            {"unconfirmed": 0, "best_return_mean": 478.5},
            "an evaluation of 478.5 is at the target "
            "return of 475, and was not confirmed on fresh episodes",
        ),
        ({"unconfirmed": 0, "best_return_mean": 474.0}, ""),
        # of an earlier start, with a lower target
        ({"reached_return_mean": 470.0, "reached_episodes": 100}, ""),
    ],
)
def test_an_end_below_the_target_says_which_evaluations_at_it_did_not_count(
    changes: dict[str, Any], said: str
) -> None:
    stop = StopStatus(max_opts=100, target_return=475.0)
    ended = Status(exit_reason="max_opts", stop=stop, eval=replace(LUCKY, **changes))
    sentence = "done: stop.max_opts is reached"
    assert describe_exit(ended) == (f"{sentence}; not solved: {said}" if said else sentence)


def test_an_end_whose_confirmation_was_cut_off_says_what_was_at_the_target() -> None:
    stop = StopStatus(target_return=475.0)
    cut_off = Eval(version=9, return_mean=495.5, best_return_mean=319.5, confirming="version 9")
    ended = ended_status(Status(stop=stop, eval=cut_off), "max_opts", "not in time")
    assert ended.eval.confirming == ""
    assert describe_exit(ended).endswith(
        "an evaluation of 495.5 is at the target return of 475, and was not "
        "confirmed on fresh episodes"
    )


def test_the_last_lines_say_why_the_best_is_below_the_last() -> None:
    stop = StopStatus(target_return=475.0)
    ended = Status(run_id="r", exit_reason="max_opts", phase="done", stop=stop, eval=LUCKY)
    text = "\n".join(summary_lines(ended, "runs/one"))
    assert "evaluation 478.5 ± 2.0, " in text
    assert text.count("20 fresh episodes") == 1
    assert "best 470.2 at version 40, on 20 fresh episodes" in text
    unconfirmed = replace(ended, eval=replace(LUCKY, fresh_episodes=None, best_return_mean=478.5))
    assert "best 478.5 at version 40, not confirmed" in "\n".join(summary_lines(unconfirmed, "r"))
    assert target_text(unconfirmed) == "best evaluation 478.5 of 475, not confirmed yet"


def test_a_run_that_an_earlier_release_ended_at_its_target_is_over_and_not_solved() -> None:
    earlier = Status(exit_reason="target_return", eval=Eval(best_return_mean=480.0))
    assert is_over(earlier, config_of().stop)
    assert not is_over(earlier, config_of(target=490.0).stop)
    assert describe_outcome(earlier) == "done"
    stopped = replace(earlier, exit_reason="interrupted")
    assert reached_condition(stopped, config_of().stop) == ""  # it is to be confirmed
