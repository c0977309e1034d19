"""Where every batch of a run in one process is unsound, it is said, not once a batch, and after a
while the run ends with the reason."""

import itertools
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_runs import Shown, config_of, trained  # beside this file

from vedette.local import in_process as run
from vedette_rl.core import Columns, Step
from vedette_rl.steps.n_step import NStep
from vedette_services.errors import SamplesRejectedError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import read_events
from vedette_services.status.text import summary_lines


class NeverFinite(gym.RewardWrapper[Any, Any]):
    """Its first reward is one, so that the check before the start finds nothing."""

    rewards = 0

    def reward(self, reward: Any) -> Any:
        self.rewards += 1
        return reward if self.rewards == 1 else float("nan")


def test_rejected_batches_are_said_at_a_bounded_rate_and_are_what_the_learner_waits_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_SHOW_EVERY_S", 0.0)
    env = {"wrappers": [{"name": f"{__name__}:NeverFinite", "training_only": True}]}
    config = config_of(env=env, stop={"max_opts": 0, "max_seconds": 1.0})
    view = Shown()
    with caplog.at_level(logging.WARNING):
        _, summary = trained(config, tmp_path, view=view)
    assert summary["samples"]["rejected"] == summary["samples"]["produced"] > 0
    assert summary["env_steps"] == 0  # what is rejected brings no run to its end
    said = [record.message for record in caplog.records if "rejected" in record.message]
    assert 1 <= len(said) < 20  # of nearly 200 batches
    assert "of in-process: column 'reward'" in said[0]
    warm_up = "learner waits: 0 of 64 warm-up samples, 1 manager connected"
    assert view.waits[1][1] == warm_up
    why = "column 'reward' has a value that is not finite"
    assert summary["rejected_reason"].startswith(why)
    assert f"  rejected {why}" in "\n".join(summary_lines(summary, "runs/one"))
    assert view.waits[-1][1].startswith(f"{warm_up}; batches are rejected: column 'reward'")


def test_a_run_whose_samples_are_all_rejected_for_ten_seconds_fails_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_SHOW_EVERY_S", 0.5)
    env = {"wrappers": [{"name": f"{__name__}:NeverFinite", "training_only": True}]}
    config = config_of(env=env, stop={"max_opts": 0, "max_seconds": 100.0})
    seconds = itertools.count(step=0.02)  # the run's own: each look at its clock
    with pytest.raises(SamplesRejectedError, match=r"samples of 1\d s were rejected: column 'rew"):
        trained(config, tmp_path, clock=lambda: next(seconds))
    assert next(seconds) < 40.0
    events, _ = read_events(RunDirectory(tmp_path).events_file)
    assert events[-1].kind == "failed"
    assert "rejected: column 'reward'" in events[-1].text
    assert RunDirectory(tmp_path).newest_checkpoint() == 0


class FarActions(NStep):
    """Stores actions that are far outside of their Box, but for those of the first steps."""

    steps = 0

    def process(self, step: Step) -> Columns:
        self.steps += 1
        if self.steps > 8:
            step = replace(step, action=np.full_like(step.action, 1e25))
        return super().process(step)


def test_an_action_far_beyond_its_box_is_rejected_as_over_the_network(tmp_path: Path) -> None:
    config = config_of(
        env={"id": "Pendulum-v1"},
        agent={"name": "sac", "hidden_sizes": [16], "batch_size": 8, "n_step": 1},
        actors={"step_processor": f"{__name__}:FarActions"},
        stop={"max_opts": 0, "max_seconds": 1.0},
    )
    _, summary = trained(config, tmp_path)
    assert summary["samples"]["rejected"] > 0
    assert summary["rejected_reason"].startswith("column 'action': 9.99")
    assert "is outside -42.0 to 42.0" in summary["rejected_reason"]
