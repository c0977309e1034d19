"""Prioritized replay: what it draws and weighs, and that priorities survive."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting_rows import BATCH, DTYPE, StartInserting, assert_rows, insert
from numpy.typing import NDArray

from vedette_rl.errors import ReplayFormatError
from vedette_rl.replay import ring_files
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.mixed import MixedReplay, Source
from vedette_rl.replay.prioritized import PrioritizedReplay, open_priorities
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.rows import MemoryRing

CONFIG = ReplayConfig(prioritized=True, alpha=1.0, beta_0=0.5, beta_steps=10, priority_epsilon=1e-9)


def replay_of(
    inserted: int, capacity: int = 100, config: ReplayConfig = CONFIG
) -> tuple[MemoryRing, PrioritizedReplay]:
    ring = MemoryRing(DTYPE, capacity, guard=20)
    insert(ring, inserted)
    return ring, PrioritizedReplay(ring, np.random.default_rng(0), config)


def counts_of(replay: PrioritizedReplay, samples: int, batch_size: int) -> dict[int, int]:
    drawn = np.concatenate([replay.sample(batch_size).indices.copy() for _ in range(samples)])
    numbers, counts = np.unique(drawn, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("inserted", [1, 63, 100, 101, 119, 120, 121, 777])
def test_samples_are_live_rows_under_their_own_numbers(inserted: int) -> None:
    _, replay = replay_of(inserted)
    for batch_size in (1, 64, 300):
        sample = replay.sample(batch_size)
        assert sample.indices.min() >= max(0, inserted - 100)
        assert sample.indices.max() < inserted
        assert_rows(sample.columns, sample.indices)


def test_rows_are_drawn_in_proportion_to_their_priority() -> None:
    _, replay = replay_of(4)
    replay.update_priority(np.arange(4), np.array([1.0, -2.0, 3.0, 4.0], np.float32))
    counts = counts_of(replay, 100, 100)
    assert counts == pytest.approx({0: 1000, 1: 2000, 2: 3000, 3: 4000}, abs=150)


def test_alpha_tempers_the_priorities() -> None:
    _, replay = replay_of(2, config=CONFIG.model_copy(update={"alpha": 0.5}))
    replay.update_priority(np.arange(2), np.array([1.0, 9.0]))
    assert counts_of(replay, 100, 100)[1] == pytest.approx(7500, abs=150)


def test_alpha_tempers_a_new_rows_priority_too() -> None:
    ring, replay = replay_of(1, config=CONFIG.model_copy(update={"alpha": 0.5}))
    replay.update_priority(np.array([0]), np.array([16.0]))
    insert(ring, 1)
    replay.look()
    replay.add_new_rows()
    np.testing.assert_allclose(replay.tree.leaves[:2], [4.0, 4.0])


def test_the_priority_is_the_error_and_epsilon() -> None:
    _, replay = replay_of(2, config=CONFIG.model_copy(update={"priority_epsilon": 0.5}))
    replay.update_priority(np.arange(2), np.array([0.0, -2.0]))
    np.testing.assert_allclose(replay.tree.leaves[:2], [0.5, 2.5])


def test_draws_are_stratified() -> None:
    """With equal priorities every share of the sum is one row: each is drawn once."""
    _, replay = replay_of(50)
    assert sorted(replay.sample(50).indices.tolist()) == list(range(50))


def test_weights_are_those_of_the_paper() -> None:
    """N = 4, P = .1 .2 .3 .4, beta = .5: (N P)**-.5, over that of the rarest row."""
    _, replay = replay_of(4)
    replay.update_priority(np.arange(4), np.array([1.0, 2.0, 3.0, 4.0]))
    sample = replay.sample(400)
    assert sample.weights is not None
    assert sample.weights.dtype == np.float32
    by_hand = (4 * np.array([0.1, 0.2, 0.3, 0.4])) ** -0.5 / (4 * 0.1) ** -0.5
    np.testing.assert_allclose(sample.weights, by_hand[sample.indices], rtol=1e-5)


def chi_square(counts: NDArray[np.float64], shares: NDArray[np.float64]) -> float:
    """How many standard deviations the statistic lies above its mean (Wilson and Hilferty 1931)."""
    expected = counts.sum() * shares / shares.sum()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(counts) - 1
    return float(
        ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom))
    )


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_frequencies_and_weights_pass_a_chi_square_test(alpha: float) -> None:
    """Draws one at a time are independent: more than 4 deviations come once in 30,000 seeds. With
    beta = 1 a row's weight is inverse to how often it is drawn, so that no expectation is biased.
    """
    config = CONFIG.model_copy(update={"alpha": alpha, "beta_0": 1.0})
    _, replay = replay_of(150, capacity=200, config=config)
    errors = np.random.default_rng(1).gamma(0.5, size=150) + 0.05
    replay.update_priority(np.arange(150), errors)
    counts = np.zeros(150)
    for _ in range(12_000):
        counts[replay.sample(1).indices] += 1
    assert abs(chi_square(counts, errors**alpha)) < 4
    if alpha:  # and it would tell priorities from their square roots
        assert chi_square(counts, errors ** (alpha / 2)) > 10
    sample = replay.sample(12_000)
    assert sample.weights is not None
    weights = np.zeros(150)
    weights[sample.indices] = sample.weights  # equal shares of the sum: every row is drawn
    assert weights.min() > 0
    assert abs(chi_square(counts, 1 / weights)) < 4


def test_beta_rises_to_its_end_and_stays_there() -> None:
    _, replay = replay_of(4)
    betas = []
    for _ in range(13):
        betas.append(replay.beta)
        replay.sample(1)
    assert betas[:3] == pytest.approx([0.5, 0.55, 0.6])
    assert betas[10:] == [1.0, 1.0, 1.0]


def test_beta_ends_where_it_is_told_to() -> None:
    _, replay = replay_of(4, config=CONFIG.model_copy(update={"beta_final": 0.7}))
    for _ in range(5):
        replay.sample(1)
    assert replay.beta == pytest.approx(0.6)
    for _ in range(10):
        replay.sample(1)
    assert replay.beta == pytest.approx(0.7)


def test_a_new_row_has_the_largest_priority_ever_seen() -> None:
    ring, replay = replay_of(2)
    replay.update_priority(np.array([0]), np.array([8.0]))
    replay.update_priority(np.array([0, 1]), np.array([1.0, 1.0]))
    insert(ring, 1)
    assert counts_of(replay, 100, 100)[2] == pytest.approx(8000, abs=150)


def test_an_overwritten_rows_priority_is_not_its_successors() -> None:
    ring, replay = replay_of(100)
    replay.update_priority(np.arange(100), np.full(100, 0.5))
    insert(ring, 1)  # number 100, at the place of number 0
    replay.sample(1)
    replay.update_priority(np.array([0, 1]), np.array([1000.0, 0.5]))
    assert 0 not in counts_of(replay, 20, 100)
    assert replay.tree.leaves[0] == 1.0


def test_of_a_row_named_twice_the_last_error_counts() -> None:
    _, replay = replay_of(2)
    replay.update_priority(np.array([0, 0, 1]), np.array([9.0, 1.0, 1.0]))
    assert counts_of(replay, 100, 100)[0] == pytest.approx(5000, abs=150)


@pytest.mark.parametrize("error", [np.nan, np.inf, -np.inf, 1e38, 1e19])
def test_a_row_with_an_error_that_no_gradient_has_is_hardly_drawn_any_more(error: float) -> None:
    _, replay = replay_of(4)
    replay.sample(1)
    replay.update_priority(np.arange(2), np.array([1.0, error], np.float32))
    assert replay.tree.total == pytest.approx(3.0, abs=0.01)
    assert counts_of(replay, 100, 100).get(1, 0) < 50
    assert replay.stats()["max_priority"] == pytest.approx(1.0, abs=1e-3)


def test_errors_of_zero_keep_a_row_alive() -> None:
    _, replay = replay_of(3)
    replay.update_priority(np.arange(3), np.zeros(3))
    assert sorted(counts_of(replay, 10, 30)) == [0, 1, 2]


def test_draws_continue_from_a_saved_state() -> None:
    ring, replay = replay_of(100)
    for _ in range(5):
        replay.sample(8)
    state = replay.get_state()
    again = PrioritizedReplay(ring, np.random.default_rng(9), CONFIG)
    again.set_state(state)
    for _ in range(3):
        expected = replay.sample(8)
        got = again.sample(8)
        np.testing.assert_array_equal(got.indices, expected.indices)
        np.testing.assert_array_equal(got.weights, expected.weights)
    assert again.beta == replay.beta


def test_the_largest_priority_ever_seen_is_saved() -> None:
    _, replay = replay_of(2)
    replay.update_priority(np.array([0]), np.array([8.0]))
    replay.update_priority(np.array([0]), np.array([1.0]))
    ring, again = replay_of(0)
    again.set_state(replay.get_state())
    insert(ring, 1)
    again.look()
    again.add_new_rows()
    assert again.tree.leaves[0] == pytest.approx(8.0)


def on_disk(directory: Path, **changes: Any) -> PrioritizedReplay:
    ring = RingReader(directory, batch_rows=BATCH)
    config = CONFIG.model_copy(update=changes)
    memory = open_priorities(ring)
    return PrioritizedReplay(ring, np.random.default_rng(0), config, memory=memory)


def test_priorities_survive_the_trainer(tmp_path: Path) -> None:
    ring = RingWriter.open(tmp_path, DTYPE, 100, run_id="run", guard=20)
    insert(ring, 150)
    replay = on_disk(tmp_path)
    replay.sample(1)
    replay.update_priority(np.arange(50, 150), np.arange(1.0, 101.0))
    expected = replay.tree.leaves.copy()
    del replay  # nothing is closed, as after a kill
    insert(ring, 10)
    again = on_disk(tmp_path)
    again.sample(1)
    expected[50:60] = 100.0  # numbers 150 to 159, new to it
    np.testing.assert_allclose(again.tree.leaves, expected)
    assert again.tree.total == pytest.approx(expected.sum())
    assert again.stats()["max_priority"] == pytest.approx(100.0)


def test_a_run_goes_on_with_the_priorities_of_its_checkpoint_and_none_of_later_steps(
    tmp_path: Path,
) -> None:
    ring = RingWriter.open(tmp_path, DTYPE, 100, run_id="run", guard=20)
    insert(ring, 150)

    def made(**changes: Any) -> PrioritizedReplay:
        config = CONFIG.model_copy(update=changes)
        return PrioritizedReplay(RingReader(tmp_path), np.random.default_rng(0), config)

    replay = made()
    replay.sample(1)
    replay.update_priority(np.arange(50, 150), np.arange(1.0, 101.0))
    expected = replay.tree.leaves.copy()
    state = replay.get_state()
    insert(ring, 10)
    replay.update_priority(np.arange(60, 150), np.full(90, 1000.0))  # the steps that are lost
    replay.sample(1)
    again = made()
    again.set_state(state)
    again.sample(1)
    expected[50:60] = 100.0  # numbers 150 to 159, new to it
    np.testing.assert_allclose(again.tree.leaves, expected)
    assert again.tree.total == pytest.approx(expected.sum())
    assert again.stats()["max_priority"] == pytest.approx(100.0)
    tempered = made(alpha=0.5)
    tempered.set_state(state)
    tempered.sample(1)
    np.testing.assert_allclose(tempered.tree.leaves, expected**0.5)


def test_of_a_checkpoint_of_other_rows_all_count_as_new(tmp_path: Path) -> None:
    for name, rows in (("one", 150), ("other", 150), ("fewer", 120)):
        ring = RingWriter.open(tmp_path / name, DTYPE, 100, run_id="run", guard=20)
        insert(ring, rows)
        ring.close()
    replay = PrioritizedReplay(RingReader(tmp_path / "one"), np.random.default_rng(0), CONFIG)
    replay.sample(1)
    replay.update_priority(np.arange(50, 150), np.arange(1.0, 101.0))
    state = replay.get_state()
    fewer = RingReader(tmp_path / "fewer")
    fewer.branch = state["branch"]  # as no recovery leaves it
    ring_files.write_cursor(tmp_path / "one", 140, 0, new_branch=True)
    ring_files.write_cursor(tmp_path / "one", 150, 0, new_branch=False)  # ten others have come
    for rows in (RingReader(tmp_path / "one"), RingReader(tmp_path / "other"), fewer):
        again = PrioritizedReplay(rows, np.random.default_rng(0), CONFIG)
        again.set_state(state)
        assert not again.goes_on
        again.sample(1)
        np.testing.assert_allclose(again.tree.leaves[:100], 100.0)


def test_weights_and_sums_after_a_resume_are_the_same_bit_by_bit(tmp_path: Path) -> None:
    """Of two sources, whose weights have the sums in them: they follow from the masses alone."""
    row = np.dtype([("reward", "<f4")])
    places = tmp_path / "a", tmp_path / "b"
    for place in places:
        ring = RingWriter.open(place, row, 20_000, run_id="run", guard=5000)
        for _ in range(5):
            ring.append({"reward": np.float32(0.0)}, 4000)
            ring.commit()
        ring.close()

    def made() -> MixedReplay:
        rng = np.random.default_rng(0)
        config = CONFIG.model_copy(update={"alpha": 0.6})
        drawn = [PrioritizedReplay(RingReader(place), rng, config) for place in places]
        return MixedReplay(drawn[0], [Source("other", drawn[1], 0.4)])

    rng = np.random.default_rng(1)
    whole = made()
    for _ in range(300):
        indices = whole.sample(256).indices
        whole.update_priority(indices, rng.exponential(1.0, 256))
    again = made()
    again.set_state(whole.get_state())
    assert again.goes_on
    for one, other in zip(whole._sources, again._sources, strict=True):
        for level, other_level in zip(
            one.replay.tree.levels,  # type: ignore[union-attr]  # by priority
            other.replay.tree.levels,  # type: ignore[union-attr]  # by priority
            strict=True,
        ):
            np.testing.assert_array_equal(level, other_level)
    for _ in range(50):
        expected, found = whole.sample(256), again.sample(256)
        np.testing.assert_array_equal(found.indices, expected.indices)
        np.testing.assert_array_equal(found.weights, expected.weights)


def test_priorities_follow_a_changed_alpha(tmp_path: Path) -> None:
    insert(RingWriter.open(tmp_path, DTYPE, 100, run_id="run"), 2)
    replay = on_disk(tmp_path, alpha=0.5)
    replay.sample(1)
    replay.update_priority(np.arange(2), np.array([4.0, 9.0]))
    np.testing.assert_allclose(replay.tree.leaves[:3], [2.0, 3.0, 0.0])
    np.testing.assert_allclose(on_disk(tmp_path, alpha=1.0).tree.leaves[:3], [4.0, 9.0, 0.0])
    np.testing.assert_allclose(on_disk(tmp_path, alpha=0.0).tree.leaves[:3], [1.0, 1.0, 0.0])
    np.testing.assert_allclose(on_disk(tmp_path, alpha=0.7).tree.leaves[:3], [1.0, 1.0, 0.0])


def test_priorities_of_another_replay_are_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        insert(RingWriter.open(tmp_path / name, DTYPE, 100, run_id="run"), 1)
        on_disk(tmp_path / name)
    (tmp_path / "other" / "priorities.bin").rename(tmp_path / "one" / "priorities.bin")
    with pytest.raises(ReplayFormatError, match=r"priorities\.bin is no part of this replay"):
        on_disk(tmp_path / "one")


def test_a_writer_at_full_speed_never_tears_a_sample(
    tmp_path: Path, start_inserting: StartInserting
) -> None:
    RingWriter.open(tmp_path, DTYPE, 300, run_id="counting", guard=8192).close()
    child = start_inserting(tmp_path, 300, 8192)
    assert child.stdout is not None
    assert child.stdout.readline() == "0\n"
    replay = on_disk(tmp_path)
    rng = np.random.default_rng(0)
    until = time.monotonic() + 1.5
    while not replay.inserted and time.monotonic() < until + 30:
        time.sleep(0.001)
    while time.monotonic() < until:
        sample = replay.sample(64)
        assert_rows(sample.columns, sample.indices)
        assert sample.weights is not None
        assert np.isfinite(sample.weights).all()
        replay.update_priority(sample.indices, rng.random(64))
    assert child.poll() is None
    assert replay.inserted > 10 * 300
