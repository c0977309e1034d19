"""Rows that a column marks are copied into a ring of their own, each once, whatever is killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from counting_rows import DTYPE, insert

from vedette_rl.replay.ring import MarkedRows, RingReader, RingWriter

CAPACITY = 200
GUARD = 60


def opened(place: Path, capacity: int = CAPACITY, guard: int = GUARD) -> RingWriter:
    return RingWriter.open(place, DTYPE, capacity, run_id="r", guard=guard)


def copied(place: Path) -> list[int]:
    ring = RingReader(place)
    oldest, inserted = ring.live()
    actions = ring.columns["action"]
    found: list[int] = actions[np.arange(oldest, inserted) % len(actions)].tolist()
    return found


def marked(count: int) -> list[int]:
    return [number for number in range(count) if number % 7 == 0]  # `terminated` of counting rows


@pytest.mark.parametrize("room", [1, 3, 60])
@pytest.mark.parametrize("killed_after", ["the rows", "the copies", "nothing"])
def test_each_is_copied_once_across_kills(tmp_path: Path, killed_after: str, room: int) -> None:
    """A kill is a writer that is dropped: the next one finds what was committed."""
    rng = np.random.default_rng(0)
    total = 0
    while total < 1500:
        ring = opened(tmp_path / "a")
        copies = opened(tmp_path / "b", 500, room)
        following = MarkedRows(ring, copies, "terminated")
        following.follow()
        for _ in range(int(rng.integers(1, 6))):
            count = int(rng.integers(1, GUARD))
            insert(ring, count)
            total += count
            if killed_after == "the rows":
                break
            following.follow()
        if killed_after == "nothing":
            following.close()
        else:
            copies._held.close()
        ring._held.close()
    ring = opened(tmp_path / "a")
    MarkedRows(ring, opened(tmp_path / "b", 500, room), "terminated").close()
    ring.close()
    assert copied(tmp_path / "b") == marked(total)


def test_the_oldest_copies_make_room(tmp_path: Path) -> None:
    ring = opened(tmp_path / "a")
    following = MarkedRows(ring, opened(tmp_path / "b", 5, 4), "terminated")
    for _ in range(20):
        insert(ring, 50)
        following.follow()
    assert copied(tmp_path / "b") == marked(1000)[-5:]


def test_a_replay_that_begins_anew_keeps_what_was_copied(tmp_path: Path) -> None:
    ring = opened(tmp_path / "a")
    following = MarkedRows(ring, opened(tmp_path / "b", 500), "terminated")
    insert(ring, 50)
    following.close()
    anew = opened(tmp_path / "other")
    following = MarkedRows(anew, opened(tmp_path / "b", 500), "terminated")
    insert(anew, 20)
    following.close()
    assert copied(tmp_path / "b") == marked(50) + marked(20)
