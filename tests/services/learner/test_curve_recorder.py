"""What the recorder sees of the fleet, also where a run goes on."""

import pytest

from vedette_rl.core import Record
from vedette_rl.recording.registry import TeeRecorder
from vedette_services.config import RunConfig
from vedette_services.learner.run_recorder import CurveRecorder
from vedette_services.run.status import Eval, Samples
from vedette_services.run.status_records import GatewayStatus, TrainerStatus
from vedette_services.run.status_schema import is_against_opt_steps


class Steps(TeeRecorder):
    """Remembers at which steps something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def write(self, record: Record, step: int) -> None:
        self.steps.append(step)


CONFIG = RunConfig.model_validate({"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}})


def ingest(produced: int) -> GatewayStatus:
    return GatewayStatus(samples=Samples(produced, inserted=produced), env_steps=produced)


def test_a_curve_never_runs_backwards_where_a_killed_run_goes_on() -> None:
    recorder = Steps()
    curves = CurveRecorder(recorder, "r", CONFIG, env_steps=1000)
    for now, produced in enumerate((0, 900, 980, 1020)):
        curves.record(now * 2.0, TrainerStatus(), ingest(produced), Eval())
    assert recorder.steps == [1000, 1000, 1020]


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
