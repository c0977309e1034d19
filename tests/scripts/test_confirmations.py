"""The simulation of confirmations: its learning curve, and what it says of one evaluation."""

from __future__ import annotations

import numpy as np
from confirmations import TARGET, LearningCurve, end_run, table_lines

SURE = LearningCurve(begin=375.0, end=490.0, rise=100, models=0.0, episodes=0.0)


def test_without_noise_a_run_ends_with_the_first_model_at_the_target() -> None:
    for confirm in (0, 1, 5):
        assert end_run(SURE, confirm, np.random.default_rng(0)) == (101, TARGET)


def test_the_same_seed_gives_the_same_table() -> None:
    noisy = LearningCurve(begin=465.0, end=490.0, rise=10, models=10.0, episodes=40.0)
    first, again = (list(table_lines(noisy, 20, 3)) for _ in range(2))
    assert first == again
    assert [line.split("|")[1].strip() for line in first[2:]] == ["0", "1", "2", "5", "10"]
