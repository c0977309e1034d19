"""Hindsight learns a task of goals whose reward says nothing until the goal is reached."""

from pathlib import Path
from typing import Any

import pytest
from configurations import configured
from small_runs import trained  # beside this file

BITS = 10
STEPS = 12_000
SETTINGS: dict[str, Any] = {
    "env": {"id": "vedette_rl.testing.inputs:BitFlip", "kwargs": {"bits": BITS}},
    "agent": {
        "name": "dqn",
        "hidden_sizes": [128],
        "batch_size": 64,
        "n_step": 1,
        "learning_rate": 1e-3,
        "discount": 0.98,
        "target_update_interval": 100,
        "exploration": {"kind": "constant", "epsilon_final": 0.1},
    },
    "replay": {"samples_per_insert": 16},
    "learner": {"warmup_period": 1000, "sync_interval": 10, "eval_interval": 500},
    "evaluation": {"episodes": 50},
    "stop": {"max_env_steps": STEPS},
}


def last_return(out: Path, steps: str) -> float:
    actors = {"count": 1, "envs_per_actor": 8, "n_buffer": 50, "step_processor": steps}
    table = {**SETTINGS, "seed": 1, "actors": actors}
    _, summary = trained(configured(table=table), out)
    assert STEPS <= summary["env_steps"] < 1.05 * STEPS
    return float(summary["eval"]["return_mean"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_goal_that_is_never_reached_by_chance_is_learned_with_hindsight_alone(
    tmp_path: Path,
) -> None:
    with_hindsight, without = (last_return(tmp_path / steps, steps) for steps in ("her", "n_step"))
    print(f"with hindsight {with_hindsight:.2f}, without {without:.2f}")
    # to flip each wrong bit once is -4 on average; never to reach the goal is -10
    assert with_hindsight > -5.5
    assert without < -8.5
