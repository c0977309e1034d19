"""How far apart two models are, where versions go back."""

from __future__ import annotations

import numpy as np
import pytest

from vedette_rl.replay.history import UNREACHED, History

CRASHED = History(((1, 0), (3, 300)))  # epoch 2 left nothing


@pytest.mark.parametrize(
    ("row", "lag"),
    [
        ((1, 250), 100),  # of this history
        ((1, 450), 50 + 150),  # of the steps that were lost: back to 300, and on to 450
        ((2, 520), 50 + 220),
        ((3, 340), 10),
        ((3, 350), 0),
        ((3, 360), 10),  # a claim: no model of this epoch is newer
        ((4, 10), UNREACHED),
        ((1, -5), 355),
    ],
)
def test_lag_counts_both_ways_from_the_fork(row: tuple[int, int], lag: int) -> None:
    assert CRASHED.lag(*row, opt_steps=350) == lag
    epoch, version = row
    assert CRASHED.lags(epoch, np.array([version] * 2), opt_steps=350).tolist() == [lag, lag]


def test_the_earliest_later_start_is_where_a_branch_was_left() -> None:
    """The newest checkpoint was torn, so the second start went further back than the first."""
    history = History(((1, 0), (2, 300), (3, 100)))
    assert history.lag(1, 280, opt_steps=150) == 50 + 180
    assert history.lag(2, 280, opt_steps=150) == 50 + 180


def test_it_is_kept_in_an_array() -> None:
    assert History.from_array(CRASHED.to_array()) == CRASHED
    assert History.from_array(np.zeros((0, 2), np.int64)) == History()
    assert CRASHED.begun(4, 350).starts[-1] == (4, 350)
