"""Initial priorities that actors tell: Ape-X's."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.prioritized import TD_ERROR, PrioritizedReplay, open_priorities
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.rows import MemoryRing

DTYPE = np.dtype([("action", "<i8"), (TD_ERROR, "<f4")])
CONFIG = ReplayConfig(
    prioritized=True, initial_priorities="actor", alpha=1.0, priority_epsilon=1e-9
)


def insert(ring: MemoryRing | RingWriter, errors: list[float]) -> None:
    for error in errors:
        ring.append({"action": ring.inserted, TD_ERROR: error}, 1)
        ring.commit(b"")


def shares(replay: PrioritizedReplay) -> dict[int, float]:
    drawn = np.concatenate([replay.sample(100).indices.copy() for _ in range(50)])
    numbers, counts = np.unique(drawn, return_counts=True)
    return dict(zip(numbers.tolist(), (counts / len(drawn)).tolist(), strict=True))


def test_new_rows_are_drawn_by_their_own_errors() -> None:
    ring = MemoryRing(DTYPE, 5, guard=3)
    replay = PrioritizedReplay(ring, np.random.default_rng(0), CONFIG)
    insert(ring, [1.0, 0.0, 3.0, 4.0])
    assert shares(replay) == pytest.approx({0: 1 / 8, 2: 3 / 8, 3: 4 / 8}, abs=0.01)
    replay.update_priority(np.array([2]), np.array([1.0]))
    insert(ring, [2.0, 2.0, 6.0])  # 0 and 1 are overwritten
    expected = {2: 1 / 15, 3: 4 / 15, 4: 2 / 15, 5: 2 / 15, 6: 6 / 15}
    assert shares(replay) == pytest.approx(expected, abs=0.01)


def test_alpha_and_epsilon_count_in_new_rows_too() -> None:
    ring = MemoryRing(DTYPE, 5, guard=3)
    config = CONFIG.model_copy(update={"alpha": 0.5, "priority_epsilon": 0.25})
    replay = PrioritizedReplay(ring, np.random.default_rng(0), config)
    insert(ring, [0.0, 3.75])  # masses: roots of 0.25 and 4
    assert shares(replay) == pytest.approx({0: 0.2, 1: 0.8}, abs=0.01)


def test_rows_inserted_while_no_trainer_ran_are_drawn_by_their_errors(tmp_path: Path) -> None:
    ring = RingWriter.open(tmp_path, DTYPE, 5, run_id="r", guard=3)
    insert(ring, [float(i) for i in range(1, 13)])
    reader = RingReader(tmp_path)
    memory = open_priorities(reader)
    replay = PrioritizedReplay(reader, np.random.default_rng(0), CONFIG, memory=memory)
    expected = {number: (number + 1) / 50 for number in range(7, 12)}
    assert shares(replay) == pytest.approx(expected, abs=0.01)
    ring.close()


def test_priorities_of_actors_ask_for_prioritized_replay() -> None:
    with pytest.raises(ValidationError, match="nothing is drawn by priority: set prioritized=true"):
        ReplayConfig.model_validate({"initial_priorities": "actor"})
