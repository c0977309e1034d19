"""Samples per insert are the run's, not the machine's."""

from pathlib import Path
from typing import Any

import pytest

from vedette.api import train

SYNTHETIC = "vedette_rl.testing:Synthetic"
WARMUP = 256
RATIO = 8.0


def samples_per_insert(
    out: Path, *, sleep_s: float, hidden: int, replay: dict[str, float]
) -> float:
    """Of a short run whose environment takes `sleep_s` a step and whose network is so wide."""
    settings: dict[str, Any] = {
        "agent": {"name": "dqn", "hidden_sizes": [hidden, hidden], "batch_size": 32},
        "actors": {"count": 1, "envs_per_actor": 4, "n_buffer": 16},
        "replay": {"capacity": 10_000, **replay},
        "learner": {"warmup_period": WARMUP, "eval_interval": 0},
        "stop": {"max_opts": 400},
        "env": {"id": SYNTHETIC, "kwargs": {"sleep_s": sleep_s}},
    }
    result = train(out=out, **settings)
    assert result.summary["exit_reason"] == "max_opts"
    return float(result.summary["limiter"]["samples_per_insert"])


@pytest.mark.parametrize(
    ("sleep_s", "hidden", "replay"),
    [
        (0.0, 256, {"samples_per_insert": RATIO}),
        pytest.param(0.002, 8, {"samples_per_insert": RATIO}, marks=pytest.mark.slow),
        # DQN's own: batches of 32, one in 2 environment steps
        pytest.param(0.0, 8, {}, marks=pytest.mark.slow),
    ],
    ids=["slow learner, fast actors", "fast learner, slow actors", "no ratio is set"],
)
def test_fast_and_slow_machines_draw_as_much_for_a_sample(
    tmp_path: Path, sleep_s: float, hidden: int, replay: dict[str, float]
) -> None:
    # 400 batches of 32 are drawn for 1,600 samples, or by DQN's own ratio for 800; the band is a
    # tenth of that either way, and at the end actors hand in what they hold.
    ratio = samples_per_insert(tmp_path / "run", sleep_s=sleep_s, hidden=hidden, replay=replay)
    assert ratio == pytest.approx(RATIO if replay else 16.0, rel=0.2)
