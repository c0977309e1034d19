"""A queue, its writer and its disk, all that becomes of them, and what must hold.

No process and no torch: a `QueueReplay` and a `MemoryRing` with the writer's bound. The learner's
weights are the multiset of the rows that it was given, saved with the place, so what it holds *is*
the history that survives. Rows carry ids, which are never used again.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vedette_rl.core.columns import row_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.queue import RUN, QueueReplay, mark_runs
from vedette_rl.replay.rows import MemoryRing

STEPS = 4
BATCH = 8
"""Rows of a minibatch."""
BATCH_ROWS = 12
"""The most rows of a batch of actors."""
CAPACITY = 40

ROW = row_dtype(
    [
        ("id", np.dtype(np.int64), ()),
        ("version", np.dtype(np.int64), ()),
        ("epoch", np.dtype(np.int32), ()),
        (RUN, np.dtype(np.bool_), ()),
        ("memory", np.dtype(np.int64), (2,)),
    ]
)


class BranchedRing(MemoryRing):
    """A ring in memory that has branches as one in files has."""

    def __init__(self) -> None:
        super().__init__(ROW, CAPACITY, guard=2 * BATCH_ROWS)
        self._branches = ["u" * 16 + "0" * 16]
        self.branch = self._branches[-1]
        self.branch_before = self.branch

    def lose_rows_from(self, number: int) -> None:
        """Go back to an earlier commit, as a recovery does after a power failure."""
        self._inserted = number
        self._pending = 0
        self.branch_before = self.branch
        self.branch_begin = number
        self._branches.append("u" * 16 + f"{len(self._branches):016d}")
        self.branch = self._branches[-1]


@dataclass
class Checkpoint:
    """A state on the disk, or on its way there."""

    given: Counter[int]
    order: list[int]
    replay: dict[str, Any]
    step: int
    begins_with: int


@dataclass
class QueueWorld:
    """The parties: actors, the gateway's writer, the trainer, and its disk of checkpoints.

    Args:
        block, passes, max_lag: the queue's settings.
        strict: a block is of one model, and actors play the newest.
        whole_runs: minibatches are of whole runs.
        first: ``memory``, the id of a row and of the one before it, is that of runs' first rows.
        mutate: changes a replay that was made; a mutation.
        late_each: so many batches have one of an older model; 0: none.
        says_at: when the writer is told what it need not keep; ``handed`` is a mutation.
        syncs_first: the disk has the rows that a checkpoint knows of before it has that.
    """

    block: int = 16
    passes: int = 2
    max_lag: int = 0
    strict: bool = False
    whole_runs: bool = False
    first: bool = False
    mutate: Callable[[QueueReplay], None] = lambda replay: None
    says_at: str = "written"
    syncs_first: bool = True
    late_each: int = 0
    ring: BranchedRing = field(default_factory=BranchedRing)
    disk: list[Checkpoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ids = 0
        self.made_by: dict[int, int] = {}  # rows, by the weights that acted
        self.synced = 0
        self.epoch = 0
        self.env_time = 0
        self.batches = 0
        self.lost: set[int] = set()
        self.handed: Checkpoint | None = None
        self.kept = 0
        self.start()

    # The trainer

    def start(self) -> None:
        """A start of the trainer, from the newest checkpoint."""
        self.epoch += 1
        self.handed = None
        config = ReplayConfig(
            kind="queue",
            sequence=STEPS,
            block=self.block,
            passes=self.passes,
            max_lag=self.max_lag,
            strict=self.strict,
            capacity=CAPACITY,
        )
        rng = np.random.default_rng(self.epoch)
        self.replay = QueueReplay(
            self.ring,
            rng,
            config,
            batch_size=BATCH,
            batch_rows=BATCH_ROWS,
            first=("memory",) if self.first else (),
            whole_runs=self.whole_runs,
        )
        self.mutate(self.replay)
        newest = self.disk[-1] if self.disk else None
        self.given = Counter(newest.given) if newest else Counter()
        self.order = list(newest.order) if newest else []
        self.step = newest.step if newest else 0
        if newest:
            self.replay.set_state(copy.deepcopy(newest.replay))
        self.replay.begin(self.epoch, self.step)
        self.begins_with = newest.begins_with if newest else 0
        self.publish()
        saved = int(newest.replay["place"]) if newest else 0
        self.say(min(saved, self.replay.place))

    def look(self) -> None:
        self.replay.look()
        if self.replay.save_is_urgent or self.replay.save_is_due:
            self.hand_over()

    def learn(self) -> bool:
        """An optimization step, if there is a block."""
        self.replay.look()
        if self.replay.wait_reason():
            return False
        sample = self.replay.sample(BATCH)
        learned = sample.columns["learned"].ravel()[sample.columns["chosen"]]
        if self.strict:
            self.check_made_by_one_model(sample.columns["id"][sample.columns["learned"]].tolist())
        ids = sample.columns["id"].ravel()[sample.columns["chosen"]][learned].tolist()
        if self.first:
            assert (sample.columns["memory"][:, 0] == sample.columns["id"][:, 0]).all()
            assert sample.columns["memory"].shape[1:] == (2,)
        for one in ids:
            if one not in self.given:
                self.order.append(one)
        self.given.update(ids)
        self.replay.done()
        self.step += 1
        if self.replay.is_between_blocks:
            self.publish()
        if self.replay.save_is_due:
            self.hand_over()
        return True

    def publish(self) -> None:
        self.published = self.epoch, self.step
        self.acts = self.weights

    @property
    def weights(self) -> int:
        """What the weights are: all that was learned from."""
        return hash(frozenset(self.given.items()))

    def check_made_by_one_model(self, ids: list[int]) -> None:
        """The rows of a block were made by the weights that it begins with, whatever ended since
        then; also where an earlier start has begun it."""
        if self.replay.minibatch.begins_block:
            self.begins_with = self.weights
        assert {self.made_by.get(one) for one in ids} == {self.begins_with}

    def fail_step(self) -> None:
        """A minibatch that the device has no memory for: it is given again."""
        self.replay.look()
        if not self.replay.wait_reason():
            self.replay.sample(BATCH)

    def hand_over(self) -> None:
        """Give a state to the thread that writes checkpoints; it replaces one that waits."""
        state = copy.deepcopy(self.replay.get_state())
        self.replay.note_handed()
        self.handed = Checkpoint(
            Counter(self.given), list(self.order), state, self.step, self.begins_with
        )
        if self.says_at == "handed":
            self.say(int(state["place"]))

    def write(self) -> None:
        """The thread writes: the disk has the ring up to what the state knows of, first."""
        if self.handed is not None:
            if self.syncs_first:
                self.synced = max(self.synced, int(self.handed.replay["taken"]))
            self.disk.append(self.handed)
            self.handed = None
            self.say(int(self.disk[-1].replay["place"]))

    def say(self, kept: int) -> None:
        self.kept = kept
        self.ring.keep_from(kept)

    # Actors and the gateway

    def insert(self, environments: int, steps: int, late: int = 0) -> bool:
        """A batch of runs; False if it has no room and comes again."""
        rows = environments * steps
        if rows > self.ring.room:
            return False
        self.batches += 1
        if self.late_each and self.batches % self.late_each == 0:
            late = min(1, self.published[1])
        env = np.repeat(np.arange(environments), steps)
        time = self.env_time + np.tile(np.arange(steps), environments)
        self.env_time += steps + 1
        ids = np.arange(self.ids, self.ids + rows)
        self.ids += rows
        columns = {"id": ids, RUN: mark_runs(env, time, STEPS)}
        columns["memory"] = np.stack([ids, ids - 1], axis=1)
        epoch, version = np.int32(self.epoch), np.int64(max(0, self.step - late))
        if self.strict:
            epoch, version = np.int32(self.published[0]), np.int64(self.published[1] - late)
            if not late:
                self.made_by.update(dict.fromkeys(ids.tolist(), self.acts))
        self.ring.append({**columns, "epoch": epoch, "version": version}, rows)
        self.ring.commit()
        return True

    def sync(self) -> None:
        self.synced = self.ring.inserted

    def lose_power(self) -> None:
        """All processes end, and the ring goes back to its last sync."""
        gone = np.arange(self.synced, self.ring.inserted)
        at = gone % len(self.ring.columns["id"])
        self.lost |= set(self.ring.columns["id"][at].tolist())
        if len(gone):
            self.ring.lose_rows_from(self.synced)
        self.start()

    # What must hold

    def check(self) -> None:
        """At any time."""
        counts = self.replay.counts
        assert self.kept <= self.replay.place, "a row that is needed may be overwritten"
        assert self.replay.place <= self.replay.taken <= self.ring.inserted
        assert self.ring.live()[0] <= self.kept or self.kept == self.replay.place
        waiting = self.ring.inserted - self.replay.taken
        found = counts.trained + counts.stale + counts.missed + counts.cut_short
        found += self.replay.rows_in_block + waiting
        assert self.ring.inserted + counts.forgotten == found, "the balance"
        assert max(self.given.values(), default=0) <= self.passes, "drawn too often"

    def drain(self) -> None:
        """Go on until all that is there was drawn, and then no more than a block's rows wait."""
        for _ in range(400):
            self.write()
            if not self.learn():
                self.look()
                self.write()
                if not self.insert(2, STEPS):
                    assert self.replay.wait_reason() == "" or self.handed, "both sides wait"
            self.check()
            if self.ids > self._enough:
                break
        while self.learn():
            self.check()

    @property
    def _enough(self) -> int:
        return self.__dict__.setdefault("_until", self.ids + 4 * CAPACITY)

    def check_drained(self) -> None:
        """At the end, of the history that survives."""
        self.drain()
        counts = self.replay.counts
        assert counts.missed == counts.cut_short == counts.forgotten == 0
        whole = [one for one, times in self.given.items() if times == self.passes]
        assert len(whole) == counts.trained
        assert set(self.given.values()) <= {self.passes}, "no block is in progress"
        if not (self.max_lag or self.strict):
            assert counts.stale == 0
            waiting = self.ring.inserted - self.replay.place
            there = set(range(self.ids)) - self.lost
            assert len(there - self.given.keys()) == waiting, "a row was skipped"
