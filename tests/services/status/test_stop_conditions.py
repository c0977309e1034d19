"""When a run is over."""

import pytest

from vedette_services.config.parts import StopConfig
from vedette_services.status.stop_conditions import find_exit_reason


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (StopConfig(), ""),
        (StopConfig(max_opts=100), "max_opts"),
        (StopConfig(max_opts=101), ""),
        (StopConfig(max_env_steps=1000), "max_env_steps"),
        (StopConfig(max_seconds=10.0), "max_seconds"),
        (StopConfig(target_return=475.0), "target_return"),
        (StopConfig(target_return=475.5), ""),
        (StopConfig(target_return=-90.0, max_opts=100), "target_return"),
    ],
)
def test_the_first_condition_met_ends_the_run(stop: StopConfig, reason: str) -> None:
    assert find_exit_reason(stop, 100, 1000, 10.0, 475.0) == reason


def test_a_target_needs_an_evaluation() -> None:
    assert find_exit_reason(StopConfig(target_return=-1e9), 1, 1, 1.0, None) == ""
