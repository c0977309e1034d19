"""What a replay may be asked to be."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from vedette_rl.replay.config import ReplayConfig


def test_the_defaults_are_the_papers() -> None:
    config = ReplayConfig()
    assert (config.alpha, config.beta_0, config.beta_final) == (0.6, 0.4, 1.0)
    assert not config.prioritized
    assert config.samples_per_insert is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"capacity": 0}, "capacity"),
        ({"alpha": 1.5}, "alpha"),
        ({"beta_0": 0.9, "beta_final": 0.5}, "beta_final is 0.5, below beta_0 0.9: raise it"),
        ({"samples_per_insert": -1.0}, "samples_per_insert"),
        ({"samples_per_insert": float("inf")}, "samples_per_insert"),
        ({"error_buffer": 0.0}, "error_buffer"),
        ({"capcity": 5}, "capcity"),
        ({"sequence": -1}, "sequence"),
        (
            {"sequence": 80, "burn_in": 40, "capacity": 119},
            "capacity is 119, and sequences have up to 120 steps .* set capacity=120",
        ),
        (
            {"sequence": 8, "prioritized": True, "initial_priorities": "actor"},
            "actors know no priorities of sequences: set initial_priorities=max, or sequence=0",
        ),
        ({"sequence": 8, "name": "mine:Replay"}, "name is one of your own: set name=auto"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ReplayConfig.model_validate(settings)


def test_the_replay_imports_no_torch() -> None:
    code = (
        "import sys, vedette_rl.storage.latest_value\n"
        "from vedette_rl.replay import budget, config, export, limiter\n"
        "from vedette_rl.replay import prioritized, ring, uniform\n"
        "assert 'torch' not in sys.modules and 'gymnasium' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
