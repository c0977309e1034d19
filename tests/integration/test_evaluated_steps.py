"""Daemons: where evaluations stand, and where a run with a limit of environment steps ends."""

import json
from pathlib import Path

import pytest

from vedette.api import curves, train_async
from vedette_services.run.events import read_events
from vedette_services.status.status import Status

INTERVAL = 100


def trained(out: Path, max_env_steps: int, actors: int = 2) -> Status:
    return train_async(
        out=out,
        preset="none",
        env={"id": "CartPole-v1"},
        agent={"name": "dqn", "hidden_sizes": [16], "batch_size": 16, "n_step": 1},
        actors={"count": actors, "envs_per_actor": 4, "n_buffer": 16},
        replay={"capacity": 10_000, "samples_per_insert": 4.0},
        learner={
            "warmup_period": 200,
            "sync_interval": INTERVAL,
            "eval_interval": INTERVAL,
            "save_interval": INTERVAL,
            "keep_checkpoints": 1000,
        },
        evaluation={"episodes": 2},
        stop={"max_env_steps": max_env_steps},
    ).summary


@pytest.mark.slow
def test_evaluations_stand_at_the_environment_steps_of_their_versions(tmp_path: Path) -> None:
    summary = trained(tmp_path / "run", 4000)
    assert summary["exit_reason"] == "max_env_steps"
    assert 4000 <= summary["env_steps"] < 4000 + 16 + 4 * 2

    found = curves(tmp_path / "run")
    steps = found["eval/mean_reward"].steps.tolist()
    versions = [int(version) for version in found["eval/version"].values]
    assert len(versions) > 4
    assert steps == sorted(set(steps))
    # The last one, of a model that was made when the run was over, is there too.
    last = summary["eval"]
    assert (steps[-1], versions[-1]) == (last["env_steps"], last["version"])
    assert versions[-1] == summary["opt_steps"]
    # A checkpoint is made a moment before the model of its step is published, and the limiter
    # keeps actors from running ahead meanwhile. Between two evaluations lie 400 steps.
    metas = (tmp_path / "run" / "checkpoints").glob("*/meta.json")
    saved = {int(path.parent.name): json.loads(path.read_text())["env_steps"] for path in metas}
    known = [
        (step, saved[version])
        for step, version in zip(steps, versions, strict=True)
        if version in saved
    ]
    assert len(known) > 3
    assert all(step - 100 <= at <= step for step, at in known), known

    again = trained(tmp_path / "run", 6000)
    events, _ = read_events(tmp_path / "run" / "events.jsonl")
    first, second = [event for event in events if event.kind == "started"]
    assert (first.env_steps, second.env_steps) == (0, summary["env_steps"])
    assert second.opt_steps == summary["opt_steps"]
    assert [event.env_steps for event in events if event.kind == "epoch"] == [
        0,
        summary["env_steps"],
    ]
    steps = curves(tmp_path / "run")["eval/mean_reward"].steps.tolist()
    assert steps == sorted(steps)
    assert steps[-1] == again["eval"]["env_steps"] > summary["env_steps"]


@pytest.mark.slow
def test_a_fleet_of_eight_actors_stops_within_a_batch_of_its_environment_steps(
    tmp_path: Path,
) -> None:
    summary = trained(tmp_path / "run", 3000, actors=8)
    assert summary["exit_reason"] == "max_env_steps"
    assert 3000 <= summary["env_steps"] < 3000 + 16 + 4 * 2
    samples = summary["samples"]
    parts = ("inserted", "rejected", "dropped", "in_flight", "lost")
    assert samples["produced"] == sum(samples[part] for part in parts)
