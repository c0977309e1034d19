"""Environment steps are counted, whatever a step processor makes of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import config_of, trained  # beside this file

from vedette_rl.core import Columns, Step
from vedette_rl.steps.n_step import NStep


class EveryThird(NStep):
    """Keeps the transitions of every third step."""

    steps = 0

    def process(self, step: Step) -> Columns:
        self.steps += 1
        rows = super().process(step)
        return rows if self.steps % 3 == 0 else {name: part[:0] for name, part in rows.items()}


class Twice(NStep):
    """Gives every transition twice."""

    def process(self, step: Step) -> Columns:
        return {name: np.repeat(part, 2, axis=0) for name, part in super().process(step).items()}


@pytest.mark.parametrize(("name", "rows_per_step"), [("EveryThird", 1 / 3), ("Twice", 2.0)])
def test_more_or_fewer_rows_than_one_a_step_do_not_shift_the_environment_steps(
    tmp_path: Path, name: str, rows_per_step: float
) -> None:
    actors: dict[str, Any] = {"step_processor": f"{__name__}:{name}"}
    config = config_of(actors=actors, stop={"max_opts": 0, "max_env_steps": 600})
    _, summary = trained(config, tmp_path)
    assert summary["exit_reason"] == "max_env_steps"
    played = sum(actor["env_steps"] for actor in summary["managers"][0]["actors"])
    most = config.actors.env_steps_max(config.agent.n_step)
    assert 600 <= summary["env_steps"] <= played < 600 + 3 * most
    made = summary["samples"]["inserted"] + summary["samples"]["rejected"]
    assert made == pytest.approx(played * rows_per_step, rel=0.1)


class TwiceDeclared(Twice):
    rows_per_step = 2.0


@pytest.mark.parametrize(
    ("steps", "rows_per_step"), [("n_step", 1), (f"{__name__}:TwiceDeclared", 2), ("her", 5)]
)
def test_rows_made_of_one_step_count_once_for_the_replay_ratio(
    tmp_path: Path, steps: str, rows_per_step: int
) -> None:
    config = config_of(
        env={"id": "vedette_rl.testing.inputs:BitFlip", "kwargs": {"bits": 4}},
        agent={"n_step": 1},
        actors={"step_processor": steps, "n_buffer": 8},
        replay={"samples_per_insert": 2.0},
        learner={"warmup_period": 8, "eval_interval": 0},
        stop={"max_opts": 0, "max_env_steps": 600},
    )
    _, summary = trained(config, tmp_path)
    samples = summary["samples"]
    made = samples["inserted"] + samples["rejected"]
    played = sum(actor["env_steps"] for actor in summary["managers"][0]["actors"])
    assert made == rows_per_step * played
    assert 600 <= summary["env_steps"] <= played
    # 2 samples drawn for each step, whatever it became: batches of 8, and the last ones undrawn
    assert summary["opt_steps"] * 8 == pytest.approx(2 * summary["env_steps"], rel=0.1)
    assert summary["limiter"]["samples_per_insert"] == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize(("actors", "n_buffer"), [(1, 100), (8, 100), (8, 1)])
def test_a_run_stops_within_a_batch_of_its_environment_steps(
    tmp_path: Path, actors: int, n_buffer: int
) -> None:
    shape = {"count": actors, "envs_per_actor": 8, "n_buffer": n_buffer}
    config = config_of(actors=shape, stop={"max_opts": 0, "max_env_steps": 1000})
    _, summary = trained(config, tmp_path)
    assert summary["exit_reason"] == "max_env_steps"
    assert 1000 <= summary["env_steps"] < 1000 + config.actors.env_steps_max(config.agent.n_step)
    samples = summary["samples"]
    parts = ("inserted", "rejected", "dropped", "in_flight", "lost")
    assert samples["produced"] == sum(samples[part] for part in parts)
    assert samples["lost"] == samples["in_flight"] == 0
