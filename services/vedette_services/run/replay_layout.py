"""The layout of a run's transitions on the wire and in its replay: whole, or observations once.

The check before the start, gateway, trainer, actors and the in-process mode all use it, so that
they agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.errors import SchemaError
from vedette_protocol.ledger import Ledger
from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import RowColumn, row_dtype
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.core.columns import (
    ACTOR,
    BURNED,
    EPOCH,
    INTERVENED,
    LEARNED,
    LENGTH,
    MANAGER,
    SEQUENCE_KEYS,
    TIME,
    VERSION,
)
from vedette_rl.envs.spaces import ElementBounds, Spaces, column_bounds, transition_dtype
from vedette_rl.errors import ReplayTornError, RowColumnError
from vedette_rl.replay.commits import COMMITS, last_commit
from vedette_rl.replay.config import INTERVENTIONS
from vedette_rl.replay.frame_ring import open_writer
from vedette_rl.replay.frame_stacks import (
    FRAMES,
    STACKS,
    FramePart,
    FrameStack,
    frame_stack,
    make_frame_ring_spec,
    row_with_places,
    split_name,
    stored_row,
)
from vedette_rl.replay.limiter import Limiter, LimiterOrigin, make_limiter
from vedette_rl.replay.manifest import SharedSpec
from vedette_rl.replay.prioritized import TD_ERROR
from vedette_rl.replay.queue import CHOSEN, RUN
from vedette_rl.replay.rows import default_guard
from vedette_rl.steps.registry import step_columns
from vedette_services.config.parts import ActorsConfig
from vedette_services.config.run_config import RunConfig
from vedette_services.config.settings import NONE
from vedette_services.errors import ConfigError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.ring_stamp import ActorNumbers, pack_stamp

REPEATS_SAID = 0.08
"""Observations that are in two batches, of a batch's rows, from which on the start says so."""


_FURTHER = (RowColumn(INTERVENED, "bool"), RowColumn(TD_ERROR), *SEQUENCE_KEYS)

_KEYS_ON_THE_WIRE = Schema.from_dtype(
    row_dtype([(key.name, key.numpy_dtype, key.shape) for key in SEQUENCE_KEYS]),
    {key.name: key.bounds for key in SEQUENCE_KEYS if key.bounds},
).columns


@dataclass(frozen=True, slots=True)
class ReplayLayout:
    """The layout of a run's transitions.

    Args:
        schema: of a batch.
        stored: a row of the ring.
        guard: rows that may be appended before a commit; None: the ring's default.
        shared: the ring's frames; None: observations are stored whole.
        batch_bytes: size of a usual full batch; the number of its frames depends on its episodes.
        batch_rows: the rows of a full batch.
        keep: rows before those that can be drawn that are left alone, beside those of the guard.
    """

    schema: Schema
    stored: np.dtype[Any]
    guard: int | None
    shared: SharedSpec | None
    batch_bytes: int
    batch_rows: int
    keep: int


def replay_layout(config: RunConfig, spaces: Spaces) -> ReplayLayout:
    """Return the layout of a run's transitions.

    Raises:
        ConfigError: observations are to be stored once, and cannot be.
        RowColumnError: what agent and step processor declare contradicts itself.
    """
    declared = configured_columns(config, spaces)
    for column in declared:
        if config.replay.is_queue and column.name in (RUN, CHOSEN):
            raise RowColumnError(column.name, "rows of a queue have it already: rename it")
    row = transition_dtype(spaces, declared)
    rows = config.actors.n_buffer
    bounds = column_bounds(spaces, declared)
    frames = None if config.replay.is_queue else _frames(config, spaces)
    schema = batch_schema(row, bounds, frames)
    capacity = config.replay.capacity
    keep = config.replay.keep
    plain = ring_dtype(row, epoch=has_sequence_keys(schema), runs=config.replay.is_queue)
    if frames is None:
        # A batch must fit between two commits.
        guard = rows if rows > default_guard(capacity, plain.itemsize) else None
        return ReplayLayout(schema, plain, guard, None, schema.payload_bytes(rows), rows, keep)
    stored = stored_row(plain, frames)
    extra_frames = extra_frames_per_batch(config, frames.stack)
    guard = max(rows, default_guard(capacity, stored.itemsize + frames.frame_bytes))
    shared = make_frame_ring_spec(
        frames,
        capacity,
        guard=guard,
        extra_frames=extra_frames,
        rows_per_batch=rows,
        keep=keep,
    )
    entries = min(rows + extra_frames, rows * frames.places_per_row)
    batch_bytes = schema.payload_bytes(rows, entries)
    return ReplayLayout(schema, stored, guard, shared, batch_bytes, rows, keep)


def check_rows(
    columns: Mapping[str, NDArray[Any]], schema: Schema, elements: ElementBounds | None
) -> None:
    """Refuse rows that must not get into a replay, whether they came over the network or from a
    data set.

    Args:
        columns: those of the schema, of any number of rows, stacked or not.
        elements: the ranges of single elements; None: they are not checked.

    Raises:
        SchemaError: see `Schema.check_values`; or an element is out of its range.
    """
    schema.check_values(columns)
    if elements is not None and (fault := elements.fault(columns)):
        raise SchemaError(fault)


def extra_frames_per_batch(config: RunConfig, stack: int) -> int:
    """Return the frames of a batch beyond one per row: for each environment of an actor, a stack
    and the n steps to a successor."""
    return config.actors.envs_per_actor * (stack + config.row_steps - 1)


def has_sequence_keys(schema: Schema) -> bool:
    """Return whether rows say which of them follow one another, and so are single steps.

    A column of another form with such a name is the user's own.
    """
    return set(_KEYS_ON_THE_WIRE).issubset(schema.columns)


def configured_columns(config: RunConfig, spaces: Spaces) -> tuple[RowColumn, ...]:
    """Return `declared_columns` of a run's configuration."""
    further = []
    if INTERVENTIONS in config.replay.sources:
        further.append(INTERVENED)
    if config.replay.initial_priorities == "actor":
        further.append(TD_ERROR)
    if config.replay.sequence:
        further += [key.name for key in SEQUENCE_KEYS]
    return declared_columns(config.agent, config.actors, spaces, further)


def first_columns(config: RunConfig, spaces: Spaces) -> frozenset[str]:
    """Return the columns of which a drawn sequence has the first row's value alone."""
    return frozenset(c.name for c in configured_columns(config, spaces) if c.first)


def schema_columns(
    schema: Schema, agent: AgentConfig, actors: ActorsConfig, spaces: Spaces
) -> tuple[RowColumn, ...]:
    """Return `declared_columns` of a run whose schema is known."""
    names = [column.name for column in schema.columns]
    further = [name for name in (INTERVENED, TD_ERROR) if name in names]
    if has_sequence_keys(schema):
        further += [key.name for key in SEQUENCE_KEYS]
    return declared_columns(agent, actors, spaces, further)


def declared_columns(
    agent: AgentConfig, actors: ActorsConfig, spaces: Spaces, further: Sequence[str] = ()
) -> tuple[RowColumn, ...]:
    """Return the columns of a transition beyond those that all have, in their order: the agent's,
    the step processor's, and those of `INTERVENED`, `TD_ERROR` and `SEQUENCE_KEYS` whose names are
    in `further`.

    Schema, ring, actors and the in-process mode all ask here.

    Args:
        spaces: of the environment.

    Raises:
        RowColumnError: two have the same name.
    """
    own = [
        *agent_kind(agent.name).columns(agent, spaces),
        *step_columns(actors.step_processor, spaces),
    ]
    columns = [*own, *(column for column in _FURTHER if column.name in further)]
    names = [column.name for column in columns]
    if TIME in further:
        taken = {*further, EPOCH, BURNED, LENGTH, LEARNED}
        for column in own:
            if column.name in taken:
                why = "rows from which sequences are drawn have a column of that name: rename it"
                raise RowColumnError(column.name, why)
    for name in names:
        if names.count(name) > 1:
            both = f"agent {agent.name!r} and actors.step_processor {actors.step_processor!r}"
            raise RowColumnError(name, f"it is declared twice, by {both}: rename one")
    return tuple(columns)


def batch_schema(
    row: np.dtype[Any], bounds: Mapping[str, tuple[int, int]], frames: FrameStack | None
) -> Schema:
    """Return the schema of a batch on the wire.

    Args:
        row: a transition's columns, with whole stacks.
        bounds: of its integer columns.
        frames: sent once each; None: observations are sent whole.
    """
    if frames is None:
        return Schema.from_dtype(row, bounds)
    of_rows = {name: bound for name, bound in bounds.items() if split_name(name)[0] not in STACKS}
    rows = Schema.from_dtype(row_with_places(row, frames), of_rows)
    columns = [replace(c, role="place") if c.name in STACKS else c for c in rows.columns]
    parts = frames.columns(FRAMES).items()
    entry = row_dtype([(name, part.dtype, part.shape) for name, part in parts])
    of_frames = {
        FRAMES + name[len("obs") :]: bound
        for name, bound in bounds.items()
        if split_name(name)[0] == "obs"
    }
    shared = Schema.from_dtype(entry, of_frames).columns
    return Schema((*columns, *(replace(c, role="shared") for c in shared)))


def frame_stack_of_schema(schema: Schema) -> FrameStack | None:
    """Return the frames that a schema's rows share; None if observations are sent whole."""
    if schema.sharing is None:
        return None
    obs = next((column for column in schema.columns if column.name == STACKS[0]), None)
    return FrameStack(
        math.prod(obs.shape) if obs else 1,
        tuple(
            FramePart(column.name.removeprefix(FRAMES), column.numpy_dtype, column.shape)
            for column in schema.sharing.columns
        ),
    )


def _frames(config: RunConfig, spaces: Spaces) -> FrameStack | None:
    """Return the frames to store once; None: all whole, as other step processors need them."""
    if config.actors.step_processor == "n_step":
        return frame_stack(config.replay, spaces)
    if config.replay.frame_storage == "once":
        name = config.actors.step_processor
        raise ConfigError(
            f"replay.frame_storage is 'once', and actors.step_processor {name!r} may look at whole "
            "observations: set actors.step_processor=n_step, or set replay.frame_storage=auto"
        )
    return None


def ring_dtype(row: np.dtype[Any], *, epoch: bool = False, runs: bool = False) -> np.dtype[Any]:
    """Return a row of the replay: a transition's columns, and `version`, `manager` and `actor`.

    Args:
        epoch: rows have the column `epoch`, too.
        runs: rows have the column `RUN`, too.
    """
    assert row.fields is not None, "a row dtype is structured"
    fields = [(name, field[0].base, field[0].shape) for name, field in row.fields.items()]
    number = np.dtype("<i4")
    fields += [(VERSION, np.dtype("<i8"), ()), (MANAGER, number, ()), (ACTOR, number, ())]
    if epoch:
        fields.append((EPOCH, number, ()))
    if runs:
        fields.append((RUN, np.dtype(np.bool_), ()))
    return row_dtype(fields)


def replay_directory(config: RunConfig, out: Path) -> Path:
    """Return `replay.directory`, by default ``replay`` in the run directory `out`."""
    return Path(config.replay.directory or out / "replay")


def saved_replay_directory(config: Mapping[str, Any], out: Path) -> Path:
    """Return the same of a run's own configuration, as its file has it: nothing is imported."""
    replay = config.get("replay")
    named = replay.get("directory") if isinstance(replay, Mapping) else None
    return Path(named) if isinstance(named, str) and named != NONE else out / "replay"


def _was_committed(replay: Path) -> bool:
    """Return whether a replay has a commit, also one that a power failure has torn: it is recovered
    later in the start."""
    try:
        return (replay / COMMITS).exists() and bool(last_commit(replay).stamp)
    except ReplayTornError:
        return True


def make_counted_replay(config: RunConfig, run: RunDirectory, layout: ReplayLayout) -> None:
    """Make the replay that goes on with the counts of an erased one, unless it was made."""
    identity = run.identity()
    place = replay_directory(config, run.root)
    if not any(identity.counted.counts()) or _was_committed(place):
        return
    ring = open_writer(
        place,
        layout.stored,
        config.replay.capacity,
        run_id=identity.run_id,
        guard=layout.guard,
        keep=layout.keep,
        shared=layout.shared,
    )
    ring.commit(pack_stamp(Ledger(identity.run_id, identity.counted), ActorNumbers()))
    ring.close()


def make_run_limiter(
    config: RunConfig, floor: int = 0, origin: LimiterOrigin | None = None
) -> Limiter:
    """Make the run's limiter; gateway and trainer use one each, each for its own side.

    Args:
        floor: of the replay's rows.
        origin: where the run's balance begins.

    Raises:
        RlError: both sides would wait for each other.
    """
    if config.replay.is_queue:  # which has a credit of its own, and whose blocks wait for rows
        return Limiter(0.0, 0, 0.0, config.samples_per_opt, floor)
    return make_limiter(
        config.replay,
        usual=config.agent.usual_samples_per_insert,
        min_size=config.learner.warmup_period,
        batch_size=config.samples_per_opt,
        insert_rows=config.actors.n_buffer,
        floor=floor,
        rows_per_step=config.actors.rows_per_step,
        origin=origin,
    )
