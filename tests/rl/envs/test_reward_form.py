"""Rewards as they come into transitions."""

import numpy as np
import pytest

from vedette_rl.envs.layout import RewardTransform


@pytest.mark.parametrize(
    ("scale", "clip", "expected"),
    [
        (1.0, 0.0, [-8.0, 0.5, 3.0]),
        (0.5, 0.0, [-4.0, 0.25, 1.5]),
        (1.0, 1.0, [-1.0, 0.5, 1.0]),
        (0.5, 1.0, [-1.0, 0.25, 1.0]),  # scaled first
    ],
)
def test_rewards_are_scaled_and_then_clipped(
    scale: float, clip: float, expected: list[float]
) -> None:
    true = np.array([-8.0, 0.5, 3.0])
    out = np.zeros(3, np.float32)
    RewardTransform(scale, clip).write(true, out)
    assert out.tolist() == expected
    assert true.tolist() == [-8.0, 0.5, 3.0]
