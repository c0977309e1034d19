"""A stop request, or `stop.max_seconds`, is heeded while a model is evaluated in process, too."""

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium as gym
import pytest
from small_runs import Shown, config_of, trained  # beside this file

from vedette.local import in_process as run
from vedette_rl.core import ModelInfo
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.config import RunConfig
from vedette_services.host.processes import StopSignals

EVALUATION_SEEDS = (10_000, 10_001)


class LongEvaluation(gym.Wrapper[Any, Any, Any, Any]):
    """Its episodes do not end where they are an evaluation's.

    Args:
        steps: played in evaluations.
        begun: episodes of evaluations.
        at_step: what happens in such a step.
    """

    steps = 0
    begun = 0
    at_step: ClassVar[dict[int, Callable[[], None]]] = {}
    evaluated = False

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if seed is not None:
            self.evaluated = seed in EVALUATION_SEEDS
        type(self).begun += self.evaluated
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self.evaluated:
            type(self).steps += 1
            self.at_step.get(type(self).steps, lambda: None)()
            if terminated or truncated:
                obs, info = self.env.reset()
            terminated = truncated = False
        return obs, reward, terminated, truncated, info


@pytest.fixture(autouse=True)
def nothing_happens_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LongEvaluation, "at_step", {})
    monkeypatch.setattr(LongEvaluation, "steps", 0)
    monkeypatch.setattr(LongEvaluation, "begun", 0)


def long_config(**parts: Any) -> RunConfig:
    env = {"wrappers": [{"name": f"{__name__}:LongEvaluation"}]}
    return config_of(env=env, **parts)


def said_at_the_end(out: Path) -> list[str]:
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    return [event["text"] for event in events if event["kind"] == "ended"]


def test_a_stop_request_ends_an_evaluation_and_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stop = StopSignals(signals=())
    LongEvaluation.at_step = {30: stop.request}
    with caplog.at_level(logging.INFO):
        _, summary = trained(long_config(), tmp_path, stop=stop)
    assert (summary["exit_reason"], summary["opt_steps"]) == ("interrupted", 40)
    assert LongEvaluation.steps == 30
    assert LongEvaluation.begun == 2  # no other was begun
    assert "the evaluation of version 40 is given up: 0 of 2 episodes had ended" in caplog.text
    assert summary["eval"]["return_mean"] is summary["eval"]["best_return_mean"] is None
    assert not (tmp_path / "best").exists()
    assert [path.name for path in Checkpoints(tmp_path / "checkpoints", 3).list()] == ["40"]
    assert said_at_the_end(tmp_path) == ["interrupted"]
    assert json.loads((tmp_path / "summary.json").read_text())["exit_reason"] == "interrupted"


def test_a_stop_request_ends_the_last_evaluation(tmp_path: Path) -> None:
    stop = StopSignals(signals=())
    LongEvaluation.at_step = {30: stop.request}
    config = long_config(stop={"max_opts": 30})
    _, summary = trained(config, tmp_path, stop=stop)
    assert LongEvaluation.steps == 30
    assert said_at_the_end(tmp_path) == [summary["exit_reason"]] == ["max_opts"]
    assert summary["unevaluated"].startswith("the last evaluation was stopped: ")


@pytest.mark.parametrize("how", ["was stopped", "did not end within evaluation.end_timeout_s = 40"])
def test_a_confirmation_that_the_end_cuts_off_is_said_as_one(
    tmp_path: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Nothing was said: its model counted as evaluated."""
    stop = StopSignals(signals=())
    learner = {"warmup_period": 64, "eval_interval": 1000}
    ends = {"max_opts": 30, "target_return": 1.0}
    config = long_config(learner=learner, stop=ends, evaluation={"end_timeout_s": 40.0})
    fresh = config.evaluation.fresh_seed(1)
    monkeypatch.setitem(globals(), "EVALUATION_SEEDS", (fresh, fresh + 1))
    late = lambda: setattr(clock, "now", 50.0)  # noqa: E731
    LongEvaluation.at_step = {30: stop.request if how == "was stopped" else late}
    _, summary = trained(config, tmp_path, stop=stop, clock=clock.monotonic)
    assert summary["exit_reason"] == "max_opts"
    assert LongEvaluation.steps == 30
    assert summary["unevaluated"].startswith(
        f"the confirmation of an evaluation at the target {how}"
    )


def test_no_evaluation_is_begun_after_a_stop_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = StopSignals(signals=())
    publish = run.InProcessRun.publish_model

    def stop_comes_first(learner: run.InProcessRun, model: ModelInfo) -> None:
        if model.version > 0:
            stop.request()
        publish(learner, model)

    monkeypatch.setattr(run.InProcessRun, "publish_model", stop_comes_first)
    _, summary = trained(long_config(learner={"sync_interval": 0}), tmp_path, stop=stop)
    assert (summary["exit_reason"], summary["opt_steps"]) == ("interrupted", 40)
    assert LongEvaluation.begun == 0


@pytest.fixture
def clock() -> SimpleNamespace:
    """Seconds as the run sees them: they pass only where a test says so."""
    time = SimpleNamespace(now=0.0)
    time.monotonic = lambda: time.now
    return time


def test_an_evaluation_is_given_up_at_the_seconds_of_the_run(
    tmp_path: Path, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    LongEvaluation.at_step = {30: lambda: setattr(clock, "now", 7.5)}
    config = long_config(stop={"max_opts": 0, "max_seconds": 7.0})
    _, summary = trained(config, tmp_path, clock=clock.monotonic)
    assert (summary["exit_reason"], summary["opt_steps"]) == ("max_seconds", 40)
    assert LongEvaluation.steps == 30
    assert LongEvaluation.begun == 2  # what was given up is not begun anew
    assert said_at_the_end(tmp_path) == ["max_seconds"]
    assert "given up at stop.max_seconds = 7 s" in summary["unevaluated"]
    assert summary["unevaluated"] in caplog.text


@pytest.mark.parametrize("stop", [{"max_seconds": 7.0}, {"max_opts": 30}])
def test_the_last_evaluation_has_the_seconds_of_its_key(
    tmp_path: Path,
    clock: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stop: dict[str, float],
) -> None:
    play = run.InProcessRun._play

    def slow_play(learner: run.InProcessRun) -> None:
        clock.now += 0.5
        play(learner)

    monkeypatch.setattr(run.InProcessRun, "_play", slow_play)
    LongEvaluation.at_step = {10: lambda: setattr(clock, "now", clock.now + 35.0)}
    LongEvaluation.at_step[20] = lambda: setattr(clock, "now", clock.now + 10.0)
    learner = {"warmup_period": 64, "eval_interval": 1000}
    config = long_config(learner=learner, stop=stop, evaluation={"end_timeout_s": 40.0})
    _, summary = trained(config, tmp_path, clock=clock.monotonic)
    assert summary["exit_reason"] == next(iter(stop))
    assert LongEvaluation.steps == 20
    assert "did not end within evaluation.end_timeout_s = 40 s" in summary["unevaluated"]
    assert summary["unevaluated"] in caplog.text


class NoNumber(LongEvaluation):
    """Its rewards are none where an evaluation plays."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, math.nan if self.evaluated else reward, *rest


def test_a_last_evaluation_that_does_not_count_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = {"wrappers": [{"name": f"{__name__}:NoNumber"}]}
    _, summary = trained(config_of(env=env, stop={"max_opts": 30}), tmp_path)
    assert summary["unevaluated"].startswith("the last evaluation failed, or does not count: ")
    assert summary["unevaluated"] in caplog.text


def test_the_view_says_what_is_played_meanwhile(tmp_path: Path, clock: SimpleNamespace) -> None:
    view = Shown()
    seen = list[int]()

    def a_second_later() -> None:
        clock.now += 1.0
        seen.append(len(view.waits))

    LongEvaluation.at_step = dict.fromkeys(range(1, 41), a_second_later)
    config = long_config(stop={"max_opts": 0, "max_seconds": 15.0})
    trained(config, tmp_path, view=view, clock=clock.monotonic)
    assert seen[-1] > seen[0] + 5
    assert view.waits[seen[-1] - 1] == (40, "learner waits: version 40 is being evaluated")
