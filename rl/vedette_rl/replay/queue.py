"""A replay that draws every row a fixed number of times, in the order of row numbers.

The rows of a *run*, up to T consecutive steps of one environment, stand one behind the other in the
ring, and the column `RUN` is True where one begins. So what was drawn is one number. A *block* is
the next K runs that are not stale::

    declared `first` (K, ...)         of the first row alone: a recurrent state, for example
    all others       (K, T, ...)      of each row; behind a shorter run's end the last one again
    learned          (K, T) bool      False behind a shorter run's end
    chosen           (B,) int64       places ``k T + t`` of this minibatch

Each block is drawn `passes` times. A pass is a permutation of its places, cut into minibatches; for
an agent that learns from sequences a permutation of its runs, so that minibatches have whole ones::

    replay.look()
    while (why := replay.wait_reason()): replay.look()
    sample = replay.sample(B)          # a minibatch, whose place is `replay.minibatch`
    ...                                # the optimization step
    replay.done()                      # it counts: the next `sample` has the next one

The writer must overwrite no row from the `place` in the newest checkpoint on
(`RowAppender.keep_from`); docs/decisions/replay-as-a-queue.md says why nothing is then lost or
drawn twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import EPOCH, LEARNED, VERSION, Columns, empty_columns, row_dtype
from vedette_rl.core.learning import MinibatchPlace, Sample, State, Total
from vedette_rl.errors import EmptyReplayError, QueueOverrunError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.history import History
from vedette_rl.replay.rows import Rows, ring_places
from vedette_rl.replay.uniform import DrawnRows

RUN = "run"
"""The stored column that is True where a run begins."""

CHOSEN = "chosen"

_BRANCH_CHARS = 16
"""Of a ring's `branch`: what is behind its uid."""


def mark_runs(env: NDArray[Any], time: NDArray[Any], length: int) -> NDArray[np.bool_]:
    """Where runs begin in batches: at each one's first row, where the environment is another or
    time does not go on, and after `length` rows.

    Args:
        env, time: the columns `ENV` and `TIME`, ``(..., rows)``.
    """
    marks = np.ones(env.shape, np.bool_)
    marks[..., 1:] = (env[..., 1:] != env[..., :-1]) | (time[..., 1:] != time[..., :-1] + 1)
    row = np.arange(env.shape[-1])
    begin = np.maximum.accumulate(np.where(marks, row, 0), axis=-1)
    cut: NDArray[np.bool_] = (row - begin) % length == 0
    return cut


@dataclass(slots=True)
class QueueCounts:
    """What has become of rows, in the history that survives.

    ``inserted + forgotten = trained + stale + missed + cut_short + in the block + waiting``

    Args:
        drawn: rows drawn, with each pass.
        trained: rows whose passes are over.
        stale: rows passed over, as the models that made them are too old (`replay.max_lag`).
        missed: rows that were overwritten before they were drawn.
        cut_short: rows of blocks that were given up in the middle.
        forgotten: numbers of rows that were gone at a start, and are used again.
    """

    drawn: int = 0
    trained: int = 0
    stale: int = 0
    missed: int = 0
    cut_short: int = 0
    forgotten: int = 0


def shared_rows(branch: str, rows: Rows) -> int:
    """Rows of now that are those of a checkpoint's ring: those below this number.

    Of a ring that has lost rows more than once since the checkpoint the first loss is not known.
    Then they count as shared: no checkpoint has its name before the disk has the rows that it knows
    of, so that losses begin behind them, unless the disk has lied each time.

    Args:
        branch: of the ring, as the checkpoint has it.
    """
    if branch != rows.branch and branch == rows.branch_before != "":
        return min(rows.branch_begin, rows.inserted)
    same_ring = branch != "" and branch[:-_BRANCH_CHARS] == rows.branch[:-_BRANCH_CHARS]
    return rows.inserted if same_ring else 0


class QueueReplay(DrawnRows):
    """Draws blocks of runs; see the module.

    Args:
        rows: with the columns `RUN`, `EPOCH` and `VERSION`.
        rng: permutes.
        config: the replay's: `sequence`, `block`, `passes`, `max_lag`, `strict`.
        batch_size: B, rows of a minibatch: it divides `block`.
        batch_rows: the most rows that are inserted at once.
        first: the columns of which a run has the first row's value alone.
        whole_runs: minibatches are of whole runs: T divides `batch_size`.

    Attributes:
        taken: the first row that was not looked at.
        counts: what has become of rows.
        needs_saves: rows wait for checkpoints before they are overwritten.
    """

    def __init__(
        self,
        rows: Rows,
        rng: np.random.Generator,
        config: ReplayConfig,
        *,
        batch_size: int,
        batch_rows: int,
        first: Iterable[str] = (),
        whole_runs: bool = False,
    ) -> None:
        super().__init__(rows, rng, config)
        self._first = frozenset(first)
        self._whole_runs = whole_runs
        self._runs = config.block // config.sequence
        self._minibatches = config.block // batch_size
        self._settings = (config.sequence, config.block, config.passes, batch_size)
        self._batch_size = batch_size
        self._batch_rows = batch_rows
        self._history = History()
        self._epoch = 0
        self._opt_steps = 0
        self.taken = 0
        self.counts = QueueCounts()
        self.needs_saves = True
        self._handed = 0  # the place in the state that was handed over last
        self._firsts: list[int] = []  # of the block's runs
        self._lengths: list[int] = []
        self._stale_behind = 0  # rows passed over since the block's first one
        self._full = False
        self._pass = self._minibatch = 0
        self._order: NDArray[np.int64] | None = None  # of the pass that has begun
        self._before_pass: Mapping[str, Any] = {}  # the generator's
        self._numbers: NDArray[np.int64] | None = None  # (K, T), of a block that is copied
        self._lags = np.zeros(1)

    # Where it is

    @property
    def place(self) -> int:
        """The first row that may not be overwritten: of the block, or `taken`."""
        return self._firsts[0] if self._firsts else self.taken

    @property
    def waiting(self) -> int:
        """Rows of the last look that were not looked at."""
        return max(0, self.live[1] - self.taken)

    @property
    def rows_in_block(self) -> int:
        """Rows of the block in progress or being made up."""
        return sum(self._lengths)

    @property
    def lacking_runs(self) -> int:
        """Runs that the block lacks of which it is made up; 0 once it is drawn."""
        return 0 if self._full else self._runs - len(self._firsts)

    @property
    def is_between_blocks(self) -> bool:
        """True where no minibatch of a block was drawn that has others behind it."""
        return not (self._pass or self._minibatch)

    def is_drained(self) -> bool:
        """Look; True where no block is whole: what waits will be none without further rows."""
        if not self._full:
            self.look()
        return not self._full

    @property
    def minibatch(self) -> MinibatchPlace:
        """The place of the minibatch that `sample` gives."""
        passes = self.config.passes
        return MinibatchPlace(self._pass, passes, self._minibatch, self._minibatches)

    @property
    def lags(self) -> NDArray[np.float64]:
        """Optimization steps between the weights and the models of the block's rows, as it was
        copied."""
        return self._lags

    @property
    def save_is_urgent(self) -> bool:
        """True where no batch has room until there is a checkpoint, and there can be a newer."""
        bound = self._handed + self.rows.capacity
        is_new = self.place > self._handed
        return self.needs_saves and is_new and self.live[1] + self._batch_rows > bound

    @property
    def save_is_due(self) -> bool:
        """True where a checkpoint has been left behind by a quarter of the capacity, or its rows
        are gone."""
        moved = self.place - self._handed
        return self.needs_saves and (moved < 0 or moved >= max(1, self.rows.capacity // 4))

    def note_handed(self) -> None:
        """Note that the state of now was handed over, to be written."""
        self._handed = self.place

    # Taking rows

    def see(self) -> None:
        """Take a look, and the runs that are new in it."""
        super().see()
        oldest, inserted = self.live
        if oldest > self.place:
            raise QueueOverrunError(self.place, oldest)
        if not self._full and inserted > self.taken:
            self._take_runs(inserted)
        if not self._full:
            has_room = self.place + self.rows.capacity - inserted >= self._batch_rows
            self._full = len(self._firsts) == self._runs or (bool(self._firsts) and not has_room)

    def _take_runs(self, inserted: int) -> None:
        columns = self.rows.columns
        numbers = np.arange(self.taken, inserted)
        marks = columns[RUN][numbers % self.physical_rows]
        marks[0] = True
        firsts = self._cut(numbers[marks], inserted)
        ends = np.append(firsts[1:], inserted)
        at = firsts % self.physical_rows
        models = zip(columns[EPOCH][at].tolist(), columns[VERSION][at].tolist(), strict=True)
        for first, end, model in zip(firsts.tolist(), ends.tolist(), models, strict=True):
            if len(self._firsts) == self._runs:
                return
            if self._is_stale(*model):
                self.counts.stale += end - first
                self._stale_behind += (end - first) if self._firsts else 0
            else:
                self._firsts.append(first)
                self._lengths.append(end - first)
            self.taken = end

    def _cut(self, firsts: NDArray[np.int64], inserted: int) -> NDArray[np.int64]:
        """The beginnings with those of runs that are longer than T now, cut up."""
        steps = self.config.sequence
        lengths = np.diff(np.append(firsts, inserted))
        if int(lengths.max()) <= steps:
            return firsts
        pairs = zip(firsts.tolist(), lengths.tolist(), strict=True)
        return np.concatenate([np.arange(f, f + length, steps) for f, length in pairs])

    def _is_stale(self, epoch: int, version: int) -> bool:
        if self.config.strict:
            return (epoch, version) != (self._epoch, self._opt_steps)
        most = self.config.max_lag
        return bool(most) and self._history.lag(epoch, version, self._opt_steps) > most

    def wait_reason(self) -> str:
        """The reason why there is no block in this look, as a sentence; "" if there is one."""
        if self._full:
            return ""
        of = f" of version {self._opt_steps:,} (replay.strict)" if self.config.strict else ""
        return (
            f"learner waits: {len(self._firsts):,} of {self._runs:,} runs{of} of the next block "
            "are there"
        )

    # Drawing

    def sample(self, batch_size: int) -> Sample:
        """The next minibatch: the same one until it is `done`.

        Raises:
            EmptyReplayError: there is no whole block yet.
        """
        assert batch_size == self._batch_size, "settings change at starts only"
        self.begin_draw()
        if not self._full:
            raise EmptyReplayError
        columns = self._block_columns()
        if self._numbers is None:
            self._copy_block(columns)
        assert self._numbers is not None, "copied just now"
        if self._order is None:
            self._begin_pass()
        assert self._order is not None, "begun just now"
        begin = self._minibatch * batch_size
        columns[CHOSEN][:] = self._order[begin : begin + batch_size]
        return Sample(columns, self._numbers.ravel()[columns[CHOSEN]])

    def _begin_pass(self) -> None:
        generator = self.rng.bit_generator
        self._before_pass = generator.state
        steps = self.config.sequence
        if self._whole_runs:
            order = self.rng.permutation(self._runs)[:, np.newaxis] * steps + np.arange(steps)
            self._order = order.ravel()
        else:
            self._order = self.rng.permutation(self._runs * steps)

    def _block_columns(self) -> Columns:
        """The buffers of a block, made once, and the minibatch's places."""
        if not self._columns:
            steps = self.config.sequence
            row = self.rows.drawn_dtype
            fields = [
                (n, row[n].base, row[n].shape if n in self._first else (steps, *row[n].shape))
                for n in row.names or ()
                if n != RUN
            ]
            fields.append((LEARNED, np.dtype(np.bool_), (steps,)))
            chosen = np.dtype([(CHOSEN, np.int64)])
            self._columns = empty_columns(row_dtype(fields), self._runs)
            self._columns |= empty_columns(chosen, self._batch_size)
        return self._columns

    def _copy_block(self, columns: Columns) -> None:
        """Copy the block's rows; of a block with fewer runs the first one again, unlearned."""
        steps = self.config.sequence
        missing = self._runs - len(self._firsts)
        firsts = np.array([*self._firsts, *[self._firsts[0]] * missing])
        lengths = np.array([*self._lengths, *[0] * missing])
        step = np.arange(steps)
        within = np.minimum(step, np.maximum(lengths, 1)[:, None] - 1)
        self._numbers = numbers = firsts[:, None] + within
        columns[LEARNED][:] = step < lengths[:, None]
        of_rows = {
            name: column.reshape(-1, *column.shape[2:])
            for name, column in columns.items()
            if name not in (LEARNED, CHOSEN) and name not in self._first
        }
        self.rows.gather(ring_places(numbers.ravel(), self.physical_rows), of_rows)
        if self._first:
            of_firsts = {name: columns[name] for name in self._first}
            self.rows.gather(ring_places(firsts, self.physical_rows), of_firsts)
        if self.rows.live()[0] > self.place:
            raise QueueOverrunError(self.place, self.rows.live()[0])
        models = zip(columns[EPOCH][:, 0].tolist(), columns[VERSION][:, 0].tolist(), strict=True)
        lag_of_runs = [self._history.lag(*model, self._opt_steps) for model in models]
        self._lags = np.repeat(np.array(lag_of_runs, np.float64), lengths)

    def done(self) -> int:
        """Count the minibatch that `sample` gave last: it was learned from.

        Returns:
            its rows, without those behind the ends of runs.
        """
        assert self._order is not None, "a sample was drawn"
        learned = self._columns[LEARNED].ravel()[self._columns[CHOSEN]]
        rows = int(np.count_nonzero(learned))
        self._opt_steps += 1
        self.counts.drawn += rows
        self._minibatch += 1
        if self._minibatch == self._minibatches:
            self._minibatch = 0
            self._pass += 1
            self._order = None
        if self._pass == self.config.passes:
            self.counts.trained += self.rows_in_block
            self._clear_block()
        return rows

    def _clear_block(self) -> None:
        self._firsts = []
        self._lengths = []
        self._stale_behind = 0
        self._full = False
        self._pass = self._minibatch = 0
        self._order = None
        self._numbers = None

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Nothing: the order of rows decides."""

    def stats(self) -> dict[str, float]:
        """Counts of rows, and the lag of the block's."""
        counts = {name: Total(n) for name, n in asdict(self.counts).items()}
        return {**counts, "waiting": float(self.waiting), "lag_mean": float(self._lags.mean())}

    # State

    def get_state(self) -> State:
        """All that the next start goes on with; of the rows the ring's branch."""
        in_pass = self._order is not None
        return {
            "rng": self._before_pass if in_pass else self.rng.bit_generator.state,
            "branch": self.rows.branch,
            "place": self.place,
            "taken": self.taken,
            "firsts": np.array(self._firsts, np.int64),
            "lengths": np.array(self._lengths, np.int64),
            "stale_behind": self._stale_behind,
            "full": self._full,
            "pass": self._pass,
            "minibatch": self._minibatch,
            "settings": np.array(self._settings, np.int64),
            "counts": asdict(self.counts),
            "history": self._history.to_array(),
        }

    def set_state(self, state: State) -> None:
        """Go on from `state`: with the same minibatch, where its rows are there and no setting that
        makes up blocks has changed."""
        self.rng.bit_generator.state = state["rng"]
        if "taken" not in state:  # of a replay that draws at random, which an empty one replaced
            return
        self._history = History.from_array(state["history"])
        if not self.rows.branch or state["branch"][:-_BRANCH_CHARS] != self.rows.branch[
            :-_BRANCH_CHARS
        ]:  # fmt: skip
            return  # another ring, or one in memory: all its rows are new
        self.counts = QueueCounts(**{name: int(n) for name, n in state["counts"].items()})
        self.taken = int(state["taken"])
        self._firsts = [int(first) for first in state["firsts"]]
        self._lengths = [int(length) for length in state["lengths"]]
        self._stale_behind = int(state["stale_behind"])
        self._full = bool(state["full"])
        self._pass = int(state["pass"])
        self._minibatch = int(state["minibatch"])
        self._handed = self.place
        self._fit_rows(
            shared_rows(state["branch"], self.rows),
            is_same=tuple(state["settings"].tolist()) == self._settings,
        )

    def _fit_rows(self, shared: int, *, is_same: bool) -> None:
        """Bring the place to where the ring's rows are those of the state.

        Args:
            shared: rows below are.
            is_same: no setting has changed that makes up blocks.
        """
        oldest = self.rows.live()[0]
        ends_at = self._firsts[-1] + self._lengths[-1] if self._firsts else 0
        if self._firsts and (not is_same or ends_at > shared or self.place < oldest):
            self._give_up_block()
        if self.taken > shared:
            self.counts.forgotten += self.taken - shared
            self.taken = shared
        if self.taken < oldest:
            self.counts.missed += oldest - self.taken
            self.taken = oldest

    def _give_up_block(self) -> None:
        """Take the block's rows again, if none was learned from; else they are cut short."""
        if self._pass or self._minibatch:
            self.counts.cut_short += self.rows_in_block
        else:
            self.taken = self.place
            self.counts.stale -= self._stale_behind
        self._clear_block()

    def begin(self, epoch: int, opt_steps: int) -> None:
        """Begin a start of the learner, behind `set_state` where there was a checkpoint.

        Args:
            epoch: of this start.
            opt_steps: of the weights that it goes on with.
        """
        self._epoch = epoch
        self._opt_steps = opt_steps
        self._history = self._history.begun(epoch, opt_steps)
        oldest = self.rows.live()[0]
        if self.taken < oldest:  # without a checkpoint
            self.counts.missed += oldest - self.taken
            self.taken = oldest
