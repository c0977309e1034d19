"""An account of every row that was ever inserted, those that the ring has overwritten too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from counting_env import STEPS, played
from numpy.typing import NDArray
from proof import Steps, steps_of

from vedette_rl.core import Columns
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.rows import live_places


class EveryRow:
    """Reads a replay of counting environments as it is written, from another process.

    ::

        rows = EveryRow(run / "replay")
        while ...: rows.look()           # often enough that nothing is overwritten unseen
        rows.look_again()                # after a kill or a restart: does all of it still stand?
        rows.missing(tally)              # at the end

    Args:
        directory: of the replay, which must be there.
    """

    def __init__(self, directory: Path) -> None:
        self._ring = RingReader(directory)
        self._seen: dict[int, NDArray[np.bool_]] = {}
        # The last rows as they were seen: row i at place i % capacity.
        self._as_seen = np.zeros(self._ring.capacity, np.int64)
        self.rows = 0
        self.repeats = 0
        self.broken = 0
        self.changed = 0
        self.forgotten = 0

    @property
    def sound(self) -> bool:
        """Every row looked at was one step, stood there once, and stayed."""
        return not (self.repeats or self.broken or self.changed or self.forgotten)

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows of {len(self._seen)} environments: {self.repeats} repeated, "
            f"{self.broken} broken, {self.changed} changed, {self.forgotten} forgotten"
        )

    def look(self) -> int:
        """Take the rows inserted since the last look into account; how many there are in all."""
        inserted = self._ring.inserted
        if inserted < self.rows:  # rows were seen, and their batch is perhaps acknowledged
            self.forgotten += self.rows - inserted
            self.rows = inserted
        elif inserted > self.rows:
            begin, (uid, step, sound) = self._steps(self.rows, inserted)
            assert begin == self.rows, "rows were overwritten unseen: raise the capacity"
            self.broken += int((~sound).sum())
            self._as_seen[np.arange(self.rows, inserted) % self._ring.capacity] = uid * STEPS + step
            for number in np.unique(uid):
                self._note(int(number), step[uid == number])
            self.rows = inserted
        return inserted

    def look_again(self) -> int:
        """Hold all live rows against what was seen when they came; how many there are."""
        inserted = self.look()
        begin, (uid, step, sound) = self._steps(max(0, inserted - self._ring.capacity), inserted)
        then = self._as_seen[np.arange(begin, inserted) % self._ring.capacity]
        self.changed += int(((uid * STEPS + step != then) | ~sound).sum())
        return inserted - begin

    def missing(self, tally: Path) -> int:
        """Steps that were played and never stood in the replay."""
        missing = 0
        for uid, (steps, _) in played(tally).items():
            seen = int(self._seen[uid].sum()) if uid in self._seen else 0
            probed = steps == 1 and not seen  # to see what a step gives, by whoever asks that
            missing += 0 if probed else steps - seen
        return missing

    def _note(self, uid: int, steps: NDArray[np.int64]) -> None:
        seen = self._seen.setdefault(uid, np.zeros(STEPS, np.bool_))
        self.repeats += len(steps) - len(np.unique(steps)) + int(seen[np.unique(steps)].sum())
        seen[steps] = True

    def _steps(self, begin: int, end: int) -> tuple[int, Steps]:
        """The rows [begin, end), copied while others are written: from which on they are whole."""
        pieces = live_places(end, end - begin, len(self._ring.columns["reward"]))
        columns: Columns = {
            name: np.concatenate([self._ring.columns[name][piece] for piece in pieces])
            for name in ("obs", "next_obs", "reward", "terminated", "truncated")
        }
        overwritten = max(0, self._ring.inserted - self._ring.capacity - begin)
        whole = {name: column[overwritten:] for name, column in columns.items()}
        return begin + overwritten, steps_of(whole)
