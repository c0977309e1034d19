"""Writes a run's journal beside the training: the loop adds to a queue, and a thread writes it once
a second.

A checkpoint is named only after the part up to its step is synced (`JournalWriter.save`). The
reverse does not hold: what cannot be written ends the part, is said once, and delays no checkpoint;
a new part begins at the next checkpoint. So it does where a part has become long: then those before
are removed whose rows the replay has no longer, by which nothing can be executed any more.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vedette_rl.storage.write_errors import describe_write_error
from vedette_services.run.journal import (
    LOOKS_OF_A_BLOCK,
    End,
    Header,
    JournalFormatError,
    Look,
    PartWriter,
    Ring,
    StateHashes,
    draws_block,
    end_block,
    hash_scalars,
    list_parts,
    read_part,
    saved_block,
    scalars_block,
)

log = logging.getLogger("vedette.trainer")

_EVERY_S = 1.0
_LONG_BYTES = 1 << 20
_LONG_LOOKS = 1 << 22  # that are alike take few bytes
_SHORT = "the disk is short, and checkpoints come first"


@dataclass(frozen=True, slots=True)
class _Begin:
    """A part begins at this step."""

    step: int
    written_by: int | None


@dataclass(frozen=True, slots=True)
class _Scalars:
    step: int
    record: Mapping[str, float]


class JournalWriter:
    """The journal of one start of a trainer.

    ::

        journal.begin(step, written_by)             # at the start
        journal.add_draw(looks)                     # at each draw
        journal.add_scalars(step, record)
        journal.save(step, hashes)                  # before a checkpoint is named
        journal.end(step, "max_opts")
        journal.close()

    The training loop calls `begin`, `add_draw`, `add_scalars` and `end`, which only add to a queue.

    Args:
        folder: of the journal.
        rings: those that grow, as they were opened.
        describe: makes the header of a part; called by the thread, once.
        is_short: true while the disk has no room for more than checkpoints.
        is_gone: true where a draw cannot be done again that saw these rows of each ring.
    """

    def __init__(
        self,
        folder: Path,
        rings: tuple[Ring, ...],
        describe: Callable[[], Header],
        *,
        is_short: Callable[[], bool] = lambda: False,
        is_gone: Callable[[Sequence[int]], bool] = lambda seen: False,
        long_bytes: int = _LONG_BYTES,
        every_s: float = _EVERY_S,
    ) -> None:
        self._folder = folder
        self._rings = rings
        self._describe = describe
        self._is_short = is_short
        self._is_gone = is_gone
        self._long_bytes = long_bytes
        self._is_long = False
        self._header: Header | None = None
        self._queue: deque[list[tuple[int, ...]] | _Begin | _Scalars | End] = deque()
        self._writes = threading.Lock()
        self._part: PartWriter | None = None
        self._before = tuple([ring.inserted for ring in rings])  # the rows that the last look saw
        self._step = 0  # of the last draw that was taken from the queue
        self._looks = 0  # of the part
        self._failed = False
        self._said = False
        self._is_writing = False
        self._end = threading.Event()
        self._thread = threading.Thread(
            target=self._write_often, args=(every_s,), name="journal", daemon=True
        )
        self._thread.start()

    @property
    def is_writing(self) -> bool:
        """False where no part goes on: it was ended, or the disk has refused it."""
        return self._is_writing and not self._failed

    @property
    def is_due(self) -> bool:
        """True where a part is to begin at the next checkpoint: none goes on, or a long one."""
        return self._is_long or not self.is_writing

    def begin(self, step: int, written_by: int | None) -> None:
        """Begin a part.

        Args:
            step: optimization steps of its checkpoint; 0.
            written_by: the epoch that writes the checkpoint; None: there is none.
        """
        self._failed = False
        self._is_long = False
        self._is_writing = True
        self._queue.append(_Begin(step, written_by))

    def add_draw(self, looks: list[tuple[int, ...]]) -> None:
        """Add the draw of the next step: the rows that its looks saw, all but the last of which
        were dropped."""
        self._queue.append(looks)

    def add_scalars(self, step: int, record: Mapping[str, float]) -> None:
        """Add the scalars that a step recorded."""
        self._queue.append(_Scalars(step, record))

    def end(self, step: int, reason: str) -> None:
        """End the part behind a step."""
        self._is_writing = False
        self._queue.append(End(step, reason))

    def save(self, step: int, hashes: StateHashes) -> None:
        """Have the disk have all draws until now, and the hashes of a state that is saved next."""
        with self._writes:
            self._write()
            self._do(lambda part: part.write(saved_block(step, hashes)))
            self._do(lambda part: part.sync())

    def close(self) -> None:
        """Write what is left, and end."""
        self._end.set()
        self._thread.join()
        with self._writes:
            self._write()
            self._do(lambda part: part.sync())
            self._close_part()

    def _write_often(self, every_s: float) -> None:
        while not self._end.wait(every_s):
            with self._writes:
                self._write()

    def _write(self) -> None:
        """Write what is in the queue."""
        looks: list[Look] = []
        for _ in range(len(self._queue)):
            match self._queue.popleft():
                case list() as of_draw:
                    looks += [Look(seen, dropped=True) for seen in of_draw[:-1]]
                    looks.append(Look(of_draw[-1]))
                case _Begin() as begin:
                    self._write_draws(looks)
                    looks = []
                    self._begin_part(begin)
                case _Scalars() as scalars:
                    block = scalars_block(scalars.step, hash_scalars(scalars.record))
                    self._write_block(block)
                case End() as end:
                    self._write_draws(looks)
                    looks = []
                    self._write_block(end_block(end))
                    self._close_part()
        self._write_draws(looks)
        if self._part is not None and self._is_short():
            self._give_up(_SHORT)

    def _write_draws(self, looks: list[Look]) -> None:
        for begin in range(0, len(looks), LOOKS_OF_A_BLOCK):
            some = looks[begin : begin + LOOKS_OF_A_BLOCK]
            if self._part is not None:
                self._write_block(draws_block(self._step + 1, some, self._before))
            self._before = some[-1].seen
            self._step += sum(not look.dropped for look in some)
            self._looks += len(some)

    def _begin_part(self, begin: _Begin) -> None:
        goes_on = self._part is not None
        self._close_part()
        self._step = begin.step
        self._looks = 0
        if self._is_short():
            self._give_up(_SHORT)
            return
        rings = [
            replace(ring, inserted=rows)
            for ring, rows in zip(self._rings, self._before, strict=True)
        ]
        try:
            self._header = self._header or self._describe()
            header = replace(
                self._header, step=begin.step, written_by=begin.written_by, rings=tuple(rings)
            )
            self._part = PartWriter.create(self._folder, header)
            if goes_on:
                self._remove_useless()
        except OSError as error:
            self._give_up(describe_write_error(error, self._folder))

    def _remove_useless(self) -> None:
        """Remove the parts before, oldest first, as long as no draw in one can be done again."""
        for path in list_parts(self._folder):
            try:
                part = read_part(path)
                if path == (self._part and self._part.path) or not part.is_behind(self._is_gone):
                    return
            except JournalFormatError:
                pass  # of a start that was killed at its begin
            path.unlink()

    def _write_block(self, block: bytes) -> None:
        self._do(lambda part: part.write(block))

    def _do(self, act: Callable[[PartWriter], None]) -> None:
        """Act on the part, if there is one; what the disk refuses ends it."""
        if self._part is None:
            return
        try:
            act(self._part)
            self._is_long = self._part.size > self._long_bytes or self._looks > _LONG_LOOKS
        except OSError as error:
            self._give_up(describe_write_error(error, self._folder))

    def _give_up(self, why: str) -> None:
        self._close_part()
        self._failed = True
        if not self._said:
            self._said = True
            log.warning(
                "the journal is not written (%s): what comes until it is written again, at a "
                "checkpoint, cannot be executed by vedette rerun",
                why,
            )

    def _close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None
