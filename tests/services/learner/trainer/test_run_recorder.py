"""What the recorder sees of the fleet, also where a run goes on."""

from contextlib import closing
from pathlib import Path

import pytest

from vedette_rl.core import Record
from vedette_rl.recording.registry import TeeRecorder
from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_services.config import RunConfig
from vedette_services.learner.trainer.run_recorder import (
    CurveRecorder,
    LastRecorded,
    truncate_curves,
)
from vedette_services.status.records import GatewayStatus, TrainerStatus
from vedette_services.status.schema import is_against_opt_steps
from vedette_services.status.status import Eval, Samples


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


def test_a_curve_never_runs_backwards_where_a_killed_run_goes_on() -> None:
    recorder = Steps()
    curves = CurveRecorder(recorder, "r", CONFIG, LastRecorded(1000))
    for now, produced in enumerate((0, 900, 980, 1020)):
        curves.record(now * 2.0, TrainerStatus(), ingest(produced), Eval())
    assert recorder.steps == [1000, 1000, 1020]


def test_an_evaluation_stands_at_the_env_steps_of_the_model_that_was_played() -> None:
    recorder = Steps()
    curves = CurveRecorder(recorder, "r", CONFIG)
    played = [Eval(), Eval(version=480, env_steps=400), Eval(version=960, env_steps=880)]
    for seen in (*played, played[-1]):
        curves.record(0.0, TrainerStatus(), ingest(1000), seen)
    assert recorder.evaluations == [(400, 480.0), (880, 960.0)]


def test_an_evaluation_after_a_resume_stands_where_the_last_start_ended_or_beyond() -> None:
    recorder = Steps()
    curves = CurveRecorder(recorder, "r", CONFIG, LastRecorded(1000))
    for seen in (Eval(version=480, env_steps=900), Eval(version=960, env_steps=1300)):
        curves.record(0.0, TrainerStatus(), ingest(1500), seen)
    assert recorder.evaluations == [(1000, 480.0), (1300, 960.0)]


def test_an_evaluation_that_a_killed_trainer_has_recorded_is_not_recorded_once_more(
    tmp_path: Path,
) -> None:
    version = 20_000_001  # more than float32 has whole
    recorded = Eval(version=version, env_steps=900, shown_return_mean=0.1, shown_version=7)
    with closing(TensorboardRecorder(tmp_path)) as before:
        curves = CurveRecorder(before, "r", CONFIG)
        curves.record(0.0, TrainerStatus(), ingest(1000), recorded)
    recorder = Steps()
    curves = CurveRecorder(recorder, "r", CONFIG, truncate_curves(tmp_path, 0))
    again = Eval(version=960, env_steps=1300, shown_return_mean=0.1, shown_version=7)
    for seen in (recorded, recorded, again):
        curves.record(-1.0, TrainerStatus(), ingest(0), seen)
    assert (recorder.evaluations, recorder.steps) == ([(1300, 960.0)], [])
    # a learner that was killed too has lost it, and plays this version once more
    curves = CurveRecorder(recorder, "r", CONFIG, truncate_curves(tmp_path, 0))
    for seen in (Eval(), recorded):
        curves.record(-1.0, TrainerStatus(), ingest(0), seen)
    assert recorder.evaluations[1:] == [(1000, float(version))]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("train/loss", True),
        ("average_opt_time", True),
        ("priority/beta", True),
        ("rollout/ep_rew_mean", False),
        ("opt_steps_per_sec", False),
        ("eval/mean_reward", False),
    ],
)
def test_losses_are_against_optimization_steps_and_returns_against_env_steps(
    name: str, answer: bool
) -> None:
    assert is_against_opt_steps(name) is answer
