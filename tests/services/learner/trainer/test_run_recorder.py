"""What the recorder sees of the fleet, also where a run goes on."""

from contextlib import closing
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from vedette_rl.core import Record
from vedette_rl.recording.reading import read_curves
from vedette_rl.recording.registry import TeeRecorder
from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_services.config import RunConfig
from vedette_services.learner.trainer.run_recorder import (
    CurveRecorder,
    LastRecorded,
    open_recorder,
    truncate_curves,
)
from vedette_services.status.learning_charts import describe_tag
from vedette_services.status.records import EndedEvaluations, GatewayStatus, TrainerStatus
from vedette_services.status.schema import is_against_opt_steps
from vedette_services.status.status import Eval, Samples, charts


class Steps(TeeRecorder):
    """Remembers at which steps something was written, and the evaluated versions among it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []
        self.evaluations: list[tuple[int, float]] = []

    def write(self, record: Record, step: int) -> None:
        if "eval/version" in record:
            self.evaluations.append((step, record["eval/version"]))
        else:
            self.steps.append(step)


CONFIG = RunConfig.model_validate({"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}})


def ingest(produced: int) -> GatewayStatus:
    return GatewayStatus(samples=Samples(produced, inserted=produced), env_steps=produced)


def record(
    curves: CurveRecorder, seen: Eval, ended: tuple[Eval, ...], *, is_last: bool = False
) -> None:
    """Record evaluations that have ended since the start, and no other curve."""
    evaluations = EndedEvaluations(len(ended), ended)
    curves.record(-1.0, TrainerStatus(), ingest(0), seen, evaluations, is_last=is_last)


def test_a_curve_never_runs_backwards_where_a_killed_run_goes_on() -> None:
    recorder = Steps()
    curves = CurveRecorder(recorder, "r", CONFIG, LastRecorded(1000))
    for now, produced in enumerate((0, 900, 980, 1020)):
        curves.record(now * 2.0, TrainerStatus(), ingest(produced), Eval())
    assert recorder.steps == [1000, 1000, 1020]


def test_an_evaluation_stands_at_the_env_steps_of_the_model_that_was_played() -> None:
    recorder = Steps()
    curves = CurveRecorder(recorder, "r", CONFIG)
    played = (Eval(version=480, env_steps=400), Eval(version=960, env_steps=880))
    for ended in ((), played[:1], played, played):
        record(curves, (Eval(), *ended)[-1], ended)
    assert recorder.evaluations == [(400, 480.0), (880, 960.0)]


@pytest.mark.parametrize("is_last", [False, True])
def test_each_evaluation_that_ends_between_two_looks_is_recorded(*, is_last: bool) -> None:
    recorder = Steps()
    curves = CurveRecorder(recorder, "r", CONFIG)
    played = tuple(Eval(version=480 * k, env_steps=400 * k) for k in range(1, 5))
    record(curves, Eval(), ())
    record(curves, played[0], played[:1])
    record(curves, played[-1], (*played, played[-1]), is_last=is_last)  # the last one twice
    assert [step for step, _ in recorder.evaluations] == [400, 800, 1200, 1600]


def test_an_evaluation_is_recorded_once_its_model_is_decided_upon_or_at_the_end() -> None:
    hit = Eval(version=480, env_steps=400, confirming="version 480 is at the target")
    for decided in (True, False):
        recorder = Steps()
        curves = CurveRecorder(recorder, "r", CONFIG)
        record(curves, Eval(), ())
        record(curves, hit, ())
        assert recorder.evaluations == []
        record(curves, hit, (hit,) if decided else (), is_last=True)
        assert recorder.evaluations == [(400, 480.0)]


def test_an_evaluation_after_a_resume_stands_where_the_last_start_ended_or_beyond() -> None:
    recorder = Steps()
    curves = CurveRecorder(recorder, "r", CONFIG, LastRecorded(1000))
    played = (Eval(version=480, env_steps=900), Eval(version=960, env_steps=1300))
    for ended in ((), played[:1], played):
        record(curves, (Eval(), *ended)[-1], ended)
    assert recorder.evaluations == [(1000, 480.0), (1300, 960.0)]


def test_an_evaluation_that_a_killed_trainer_has_recorded_is_not_recorded_once_more(
    tmp_path: Path,
) -> None:
    version = 20_000_001  # more than float32 has whole
    recorded = Eval(version=version, env_steps=900, shown_return_mean=0.1, shown_version=7)
    with closing(TensorboardRecorder(tmp_path)) as before:
        curves = CurveRecorder(before, "r", CONFIG)
        record(curves, Eval(), ())
        curves.record(
            0.0, TrainerStatus(), ingest(1000), recorded, EndedEvaluations(1, (recorded,))
        )
    recorder = Steps()
    curves = CurveRecorder(recorder, "r", CONFIG, truncate_curves(tmp_path, 0))
    again = Eval(version=960, env_steps=1300, shown_return_mean=0.1, shown_version=7)
    for ended in ((recorded,), (recorded,), (recorded, again)):
        record(curves, ended[-1], ended)
    assert (recorder.evaluations, recorder.steps) == ([(1300, 960.0)], [])
    # a learner that was killed too has lost it, and plays this version once more
    curves = CurveRecorder(recorder, "r", CONFIG, truncate_curves(tmp_path, 0))
    for ended in ((), (recorded,)):
        record(curves, (Eval(), *ended)[-1], ended)
    assert recorder.evaluations[1:] == [(1000, float(version))]


def test_evaluations_that_ended_while_no_trainer_lived_are_recorded_by_the_next_one(
    tmp_path: Path,
) -> None:
    played = tuple(Eval(version=480 * k, env_steps=400 * k) for k in range(1, 5))
    with closing(TensorboardRecorder(tmp_path)) as before:
        curves = CurveRecorder(before, "r", CONFIG)
        record(curves, Eval(), ())
        record(curves, played[1], played[:2])
    recorder = Steps()
    record(CurveRecorder(recorder, "r", CONFIG, truncate_curves(tmp_path, 0)), played[-1], played)
    assert [version for _, version in recorder.evaluations] == [1440.0, 1920.0]


def test_a_flush_with_statistics_of_draws_goes_with_the_steps_that_were_lost(
    tmp_path: Path,
) -> None:
    """Env steps are half of the optimization steps here."""
    with closing(TensorboardRecorder(tmp_path)) as before:
        for step in range(100, 1100, 100):
            before.store({"train/loss": 1.0, "queue/waiting": 2.0, "sampling/mine": 3.0})
            before.flush(step)
            before.write({"samples_total": step / 2}, step // 2)
    last = truncate_curves(tmp_path, 600)
    assert (last.env_steps, dict(last.values)) == (500, {"samples_total": 500.0})


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("train/loss", True),
        ("average_opt_time", True),
        ("priority/beta", True),
        ("queue/waiting", True),
        ("sampling/mine", True),
        ("rollout/ep_rew_mean", False),
        ("opt_steps_per_sec", False),
        ("eval/mean_reward", False),
    ],
)
def test_losses_are_against_optimization_steps_and_returns_against_env_steps(
    name: str, answer: bool
) -> None:
    assert is_against_opt_steps(name) is answer


def test_tensorboard_shows_the_sentence_of_the_report_beside_each_curve(tmp_path: Path) -> None:
    with closing(open_recorder(CONFIG, tmp_path)) as recorder:
        for step in (1, 2):
            recorder.write({"eval/mean_reward": 3.0, "train/loss": 0.5, "my/own": 1.0}, step)
    shown = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    said = {
        tag: shown.SummaryMetadata(tag).summary_description
        for tag in ("eval/mean_reward", "train/loss", "my/own")
    }
    about = next(spec.about for spec in charts() if spec.curves[0][0] == "eval/mean_reward")
    assert said == {
        "eval/mean_reward": f"Return of greedy evaluations. {about}",
        "train/loss": "Loss. Of the batch, before its gradient step.",
        "my/own": "",
    }
    assert len(shown.Tensors("train/loss")) == 2
    curves = read_curves(tmp_path).curves
    assert curves["eval/mean_reward"].steps.tolist() == [1, 2]
    assert curves["eval/mean_reward"].values.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("tag", ["eval/std_reward", "samples_per_sec", "average_opt_time"])
def test_every_number_of_the_status_has_a_sentence(tag: str) -> None:
    assert describe_tag(tag).endswith(".")
