"""Whole runs with one broken reward, and without: a step is held to typical ones only where it must
be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from broken_samples import Glitch
from small_runs import config_of, trained

from vedette_rl.networks.adam import VectorAdam

GLITCH_AT = 80


def make_glitch(reward: float) -> gym.Env[Any, Any]:
    return Glitch(gym.make("Pendulum-v1"), reward, GLITCH_AT)


gym.register("Glitch-v0", entry_point=make_glitch)


@pytest.mark.parametrize("reward", [0.0, 1e12, 1e38])
def test_a_broken_sample_changes_the_steps_that_draw_it_and_a_healthy_run_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reward: float
) -> None:
    acted = {"scaled": 0, "left out": 0}
    move = VectorAdam.move

    def count(adam: VectorAdam) -> None:
        move(adam)
        norm = float(adam._square.sqrt())
        acted["scaled"] += math.isfinite(norm) and norm > float(adam._limit)
        acted["left out"] += not norm < 1e18

    monkeypatch.setattr(VectorAdam, "move", count)
    torch.manual_seed(0)
    config = config_of(
        env={"id": "Glitch-v0", "kwargs": {"reward": reward}, "max_episode_steps": 200},
        agent={"name": "td3", "hidden_sizes": [16], "batch_size": 32, "n_step": 1},
        actors={"count": 1, "envs_per_actor": 1, "n_buffer": 16},
        learner={"eval_interval": 0},
        replay={"capacity": 500, "samples_per_insert": 64},
        stop={"max_opts": 200},
    )
    _, summary = trained(config, tmp_path)
    assert summary["exit_reason"] == "max_opts"
    assert (acted["scaled"] > 0) == (reward == 1e12), acted
    assert (acted["left out"] > 0) == (reward == 1e38), acted
