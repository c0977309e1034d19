"""The limiter: who waits, why, and which settings can never work."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_rl.errors import RlError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.limiter import Limiter, make_limiter

LIMITER = Limiter(samples_per_insert=4.0, min_size=100, error_buffer=200.0, batch_size=32)


def test_drawing_waits_for_the_warm_up_and_says_how_much_is_missing() -> None:
    assert LIMITER.sample_wait_reason(0, 0) == "learner waits: 0 of 100 warm-up samples"
    assert LIMITER.sample_wait_reason(99, 0) == "learner waits: 99 of 100 warm-up samples"
    assert LIMITER.sample_wait_reason(100, 0) == ""


def test_inserting_never_waits_before_the_warm_up_is_over() -> None:
    assert LIMITER.insert_wait_reason(99, 0) == ""


def test_inserting_waits_where_the_learner_is_behind() -> None:
    assert LIMITER.insert_wait_reason(150, 0) == ""  # 600 to draw, 400 + 200 allowed
    assert LIMITER.insert_wait_reason(160, 0) == (
        "actors wait: the learner must draw 40 more samples (replay ratio: 4 drawn per sample)"
    )
    assert LIMITER.insert_wait_reason(160, 40) == ""


def test_drawing_waits_where_the_actors_are_behind() -> None:
    assert LIMITER.sample_wait_reason(100, 168) == ""  # 400 - 168 - 32 = 200 = 400 - 200
    assert LIMITER.sample_wait_reason(100, 172) == (
        "learner waits: 1 more samples must be inserted (replay ratio: 4 drawn per sample)"
    )
    assert LIMITER.sample_wait_reason(101, 172) == ""


def test_switched_off_only_the_warm_up_is_waited_for() -> None:
    limiter = Limiter(0.0, min_size=10, error_buffer=1.0, batch_size=1000)
    assert limiter.insert_wait_reason(10**9, 0) == ""
    assert limiter.sample_wait_reason(10, 10**9) == ""
    assert limiter.sample_wait_reason(9, 0) != ""
    assert (
        Limiter(0.0, 0, 1.0, 1).sample_wait_reason(0, 0) == "learner waits: 0 of 1 warm-up samples"
    )


def test_a_band_narrower_than_a_batch_is_refused_with_the_fix() -> None:
    with pytest.raises(RlError, match=r"error_buffer is 15.* raise it to 16 or"):
        Limiter(4.0, min_size=100, error_buffer=15.0, batch_size=32)
    Limiter(4.0, min_size=100, error_buffer=16.0, batch_size=32)


@given(
    rate=st.floats(0.01, 100.0),
    min_size=st.integers(0, 5000),
    batch_size=st.integers(1, 2000),
    insert_rows=st.integers(1, 2000),
    width=st.floats(1.0, 20.0),
    seed=st.integers(0, 2**32),
)
def test_both_sides_never_wait_at_once_and_the_ratio_is_kept(
    rate: float, min_size: int, batch_size: int, insert_rows: int, width: float, seed: int
) -> None:
    error_buffer = width * batch_size / 2
    limiter = Limiter(rate, min_size, error_buffer, batch_size)
    rng = np.random.default_rng(seed)
    inserted = sampled = 0
    for _ in range(400):
        may_insert = not limiter.insert_wait_reason(inserted, sampled)
        may_sample = not limiter.sample_wait_reason(inserted, sampled)
        assert may_insert or may_sample
        if may_insert and (not may_sample or rng.random() < 0.5):
            inserted += insert_rows
        else:
            sampled += batch_size
        if inserted > min_size + insert_rows:
            drift = rate * (inserted - min_size) - sampled
            assert -error_buffer - 1e-6 * sampled - 1e-6 <= drift
            assert drift <= error_buffer + 2 * rate * insert_rows + 1e-6 * sampled


def test_left_alone_the_band_has_room_for_a_batch_on_either_side() -> None:
    config = ReplayConfig(samples_per_insert=8.0)
    limiter = make_limiter(config, usual=1.0, min_size=1000, batch_size=64, insert_rows=100)
    assert limiter.error_buffer == 1600.0
    limiter = make_limiter(config, usual=1.0, min_size=10_000, batch_size=64, insert_rows=100)
    assert limiter.error_buffer == 8000.0
    asked = ReplayConfig(samples_per_insert=8.0, error_buffer=77.0)
    assert (
        make_limiter(asked, usual=1.0, min_size=1, batch_size=64, insert_rows=1).error_buffer
        == 77.0
    )


def test_where_nothing_is_said_the_ratio_is_the_agents_usual_one() -> None:
    def rate(config: ReplayConfig) -> float:
        limiter = make_limiter(config, usual=8.0, min_size=1000, batch_size=32, insert_rows=100)
        return limiter.samples_per_insert

    assert rate(ReplayConfig()) == 8.0
    assert rate(ReplayConfig(samples_per_insert=2.0)) == 2.0
    assert rate(ReplayConfig(samples_per_insert=0.0)) == 0.0


def test_it_tells_the_ratio_since_drawing_began() -> None:
    assert LIMITER.stats(200, 500) == {"samples_per_insert": 5.0, "surplus": -100.0}
    assert LIMITER.stats(0, 0)["samples_per_insert"] == 0.0
