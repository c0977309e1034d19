"""Puts rows into batches: transitions of any count a time, `n_buffer` of them a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from vedette_protocol.limits import COUNT_MAX
from vedette_protocol.schema import Schema
from vedette_rl.core import Columns, Policy, RowColumn, StepProcessor
from vedette_rl.core.acting import TdErrorPolicy
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.core.columns import ENV, check_declared, write_rows
from vedette_rl.core.protocols import implements
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.frame_stacks import STACKS, row_with_places
from vedette_rl.replay.prioritized import TD_ERROR
from vedette_rl.steps.frame_steps import FramePool, FrameSteps
from vedette_rl.steps.registry import make_step_processor
from vedette_rl.steps.td_errors import StepsWithTdErrors
from vedette_services.config.parts import ActorsConfig
from vedette_services.errors import SpecMismatchError
from vedette_services.run.replay_layout import (
    frame_stack_of_schema,
    has_sequence_keys,
    schema_columns,
)


class Slots(Protocol):
    """Takes batches: the end of an actor that hands them over, with processes or without."""

    @property
    def columns(self) -> Columns:
        """Views of the free slot, ``(n_buffer, *shape)``; what rows share ``(entries, *shape)``."""
        ...

    def publish(
        self, rows: int, epoch: int, version: int, entries: int = 0, env_steps: int = 0
    ) -> None:
        """The free slot's first `rows` rows, and the entries they share, are a batch."""
        ...


class WholeRows:
    """Copies rows that share nothing into the free slot.

    Args:
        declared: columns of the rows that an agent or a step processor adds.
    """

    entries = 0
    """Entries that the slot's rows share so far."""

    def __init__(self, declared: Sequence[RowColumn] = ()) -> None:
        self._declared = declared

    def write(self, columns: Columns, at: int, transitions: Columns, rows: slice) -> int:
        """Copy these rows of `transitions` to row `at` of the slot and behind.

        Returns:
            The number of rows copied, all of them: a slot has place for `n_buffer`.

        Raises:
            RowColumnError: they have other columns than the slot, or numbers that it cannot hold.
        """
        check_declared(self._declared, transitions, columns)
        count: int = rows.stop - rows.start
        into = slice(at, at + count)
        for name, column in columns.items():
            write_rows(name, transitions[name], rows, column, into)
        return count

    def begin(self) -> None:
        """Begin a slot; nothing is kept from one to the next."""


class FrameWriter:
    """Copies transitions that point into a pool of frames, and those frames, as `WholeRows` does.

    Args:
        pool: holds the frames that the transitions point to, until the next step.
        declared: as `WholeRows` has it.
    """

    def __init__(self, pool: FramePool, declared: Sequence[RowColumn] = ()) -> None:
        self._pool = pool
        self._declared = declared
        self.entries = 0
        # Of each frame of the pool: its place in this batch, and the number it had then.
        self._place = np.zeros(len(pool.numbers), np.uint32)
        self._number = np.full(len(pool.numbers), -1, np.int64)

    def begin(self) -> None:
        """Begin a slot: it has no frames yet."""
        self.entries = 0
        self._number.fill(-1)

    def write(self, columns: Columns, at: int, transitions: Columns, rows: slice) -> int:
        """Copy these rows, with places in the batch, and the frames that it lacks.

        Returns:
            The number of rows copied, from the first on: fewer, or none, where the slot is full.

        Raises:
            RowColumnError: they have other columns than the slot, or numbers that it cannot hold.
        """
        frames = self._pool.frames
        expected = {name: column for name, column in columns.items() if name not in frames}
        check_declared(self._declared, transitions, expected)
        count: int = rows.stop - rows.start
        while not self._add_frames(columns, transitions, rows):
            count //= 2
            if not count:
                return 0
            rows = slice(rows.start, rows.start + count)
        into = slice(at, at + count)
        for name, column in columns.items():
            if name in STACKS:
                column[into] = self._place[transitions[name][rows]]
            elif name not in frames:
                write_rows(name, transitions[name], rows, column, into)
        return count

    def _add_frames(self, columns: Columns, transitions: Columns, rows: slice) -> bool:
        """Copy the frames of these rows that the batch lacks; False: there are too many."""
        needed = np.concatenate([transitions[name][rows].ravel() for name in STACKS])
        new = np.unique(needed[self._number[needed] != self._pool.numbers[needed]])
        end = self.entries + len(new)
        for name, frames in self._pool.frames.items():
            into = columns[name]
            if end > len(into):
                return False
            frames.take(new, 0, into[self.entries : end], "clip")
        self._place[new] = np.arange(self.entries, end)
        self._number[new] = self._pool.numbers[new]
        self.entries = end
        return True


class TransitionBatcher:
    """Fills slots. A step's rows may be in two batches.

    A batch carries the oldest (epoch, version) that contributed a row, so that its lag is never
    reported too small.

    Args:
        slots: the memory that batches are written to.
        n_buffer: rows of a batch. It is published with fewer where the writer's slot is full.
        wait_for_slot: returns once a slot is free; False if none will ever be.
        writer: copies the rows.
        env_steps_max: environment steps of a batch, at most; the rest counts with the next ones.
        by_environment: rows of a batch stand by environment, and then by time.
    """

    def __init__(
        self,
        slots: Slots,
        n_buffer: int,
        wait_for_slot: Callable[[], bool],
        writer: WholeRows | FrameWriter,
        env_steps_max: int = COUNT_MAX,
        *,
        by_environment: bool = False,
    ) -> None:
        self._by_environment = by_environment
        self._slots = slots
        self._n_buffer = n_buffer
        self._env_steps_max = env_steps_max
        self.env_steps = 0
        """Environment steps that the actor has made; batches carry those that none carried."""
        self._carried = 0
        self._wait_for_slot = wait_for_slot
        self._writer = writer
        self._rows = 0  # in the slot that is being filled
        self._oldest = (0, 0)

    def push(self, transitions: Columns, made_by: tuple[int, int]) -> None:
        """Write every row of `transitions`, publishing each batch that becomes full.

        Args:
            made_by: (epoch, version) of the oldest model behind these rows.
        """
        rows = len(transitions["reward"])
        done = 0
        while done < rows:
            if self._rows == 0:
                if not self._wait_for_slot():
                    return
                self._oldest = made_by
            wanted = slice(done, done + min(rows - done, self._n_buffer - self._rows))
            count = self._writer.write(self._slots.columns, self._rows, transitions, wanted)
            if count:
                self._oldest = min(self._oldest, made_by)
                self._rows += count
                done += count
            assert self._rows, "a slot takes a row"
            if not count or self._rows == self._n_buffer:
                self.flush()

    def flush(self) -> None:
        """Publish the rows of an unfinished batch, if there are any."""
        if self._rows:
            if self._by_environment:
                _sort_by_environment(self._slots.columns, self._rows)
            env_steps = min(self.env_steps - self._carried, self._env_steps_max)
            self._carried += env_steps
            self._slots.publish(self._rows, *self._oldest, self._writer.entries, env_steps)
            self._rows = 0
            self._writer.begin()


def _sort_by_environment(columns: Columns, rows: int) -> None:
    """Put a slot's rows, whole ones, into the order of their environments, each one's as it was."""
    env = columns[ENV][:rows]
    order = np.argsort(env, kind="stable")
    if np.array_equal(order, np.arange(rows)):
        return
    for column in columns.values():
        column[:rows] = column[:rows].take(order, axis=0)


def make_transition_pipeline(
    schema: Schema, spaces: Spaces, policy: Policy, agent: AgentConfig, actors: ActorsConfig
) -> tuple[StepProcessor, WholeRows | FrameWriter]:
    """Make the step processor of an actor with rows of `schema`, and the writer of those rows.

    Args:
        schema: the run's.
        spaces: the spaces of the actor's environments.
        policy: acts, and gives TD errors where rows have some.
        agent: the agent's configuration: n steps and discount.
        actors: the actors' configuration: environments and step processor.

    Raises:
        SpecMismatchError: rows have TD errors, and the policy gives none.
        UnknownNameError: there is no such step processor.
        HindsightError: it cannot relabel these transitions.
        RowColumnError: what agent and step processor declare contradicts itself.
    """
    envs = actors.envs_per_actor
    n_step = 1 if has_sequence_keys(schema) else agent.n_step
    declared = tuple(
        column
        for column in schema_columns(schema, agent, actors, spaces)
        if column.name != TD_ERROR  # which is added behind the processor
    )
    frames = frame_stack_of_schema(schema)
    row = transition_dtype(spaces, declared)
    if frames is not None:
        row = row_with_places(row, frames)
    made = make_step_processor(
        actors.step_processor, n_step, agent.discount, envs, row, her_goals=actors.her_goals
    )
    processor: StepProcessor = made
    writer: WholeRows | FrameWriter = WholeRows(declared)
    whole: Callable[[Columns], Columns] = lambda transitions: transitions  # noqa: E731
    if frames is not None:
        processor = framed = FrameSteps(made, frames, envs, n_step)
        writer = FrameWriter(framed.pool, declared)
        whole = framed.with_whole_stacks
    if any(column.name == TD_ERROR for column in schema.columns):
        if not implements(policy, TdErrorPolicy):
            raise SpecMismatchError("policy", f"{TD_ERROR!r} is not expected: it tells none")
        processor = StepsWithTdErrors(processor, policy, whole)
    return processor, writer
