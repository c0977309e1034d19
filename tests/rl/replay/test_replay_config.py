"""What a replay may be asked to be."""

import subprocess
import sys

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
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, float], why: str) -> None:
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
