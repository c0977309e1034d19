"""Observations sent and stored once: batches whose rows refer to the frames that they share.

Two transitions in a row share an observation: what one comes to, the next begins with. Of stacks of
S images each holds S - 1 of its predecessor's. Stored whole, every observation is there twice, and
every image of a stack 2 S times. Here a batch carries each of its *frames* once, and a row the
*places* of those that its observations are made of::

    frames...  (entries, *shape)      of the whole batch; a column for each part of the observation
    obs        (rows, S) uint32       places in `frames...`, oldest first; ``(rows,)`` where S is 1
    next_obs   likewise

Order, loss and repetition of batches cost nothing extra, since a batch needs no other. The price is
that the frames which two batches share are in both.

frame         what is stored once: an image of a *stack* of S images, or a whole observation (S = 1)
place         the index of a frame: in a batch's `frames`, in an actor's pool, or in the ring
frame pool    the frames that an actor's environments showed last (`vedette_rl.steps.frame_steps`)
extra frames  frames of a batch beyond one a row: for whole stacks, and for n steps
shared ring   the frames in the replay, a ring of their own beside the rows (`SharedSpec`); its
              *entries* are frames (`vedette_rl.replay.frame_ring`)
frame span    the frames of a row's batch, counted over the run: [begin, end)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vedette_rl.core.columns import Columns, row_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.manifest import ColumnSpec, SharedSpec

if TYPE_CHECKING:  # it imports gymnasium
    import gymnasium as gym

    from vedette_rl.envs.spaces import Spaces

FRAMES = "frames"
"""The column of a batch that its rows share; of an observation of parts ``frames/KEY``."""

STACKS = ("obs", "next_obs")
"""The columns that hold places of frames."""

FRAME_SPANS = "frame_span"
"""The stored column of a row's batch: the span [begin, end) of its frames, counted over the run."""

EPISODE_STARTS_SHARE = 0.05
"""Frames of stacks kept beyond a frame a row and a batch's extra ones, for those that begin
episodes."""

OBSERVATION_STARTS_SHARE = 0.01
"""The same of whole observations, which are large where they are stored once."""

ONCE_BYTES = 4096
"""Observations from here on are stored once by default: drawing smaller ones costs more time than
their memory is worth (`scripts/bench/run frames`)."""

_PLACES = np.dtype("<u4")
_STORED_PLACES = np.dtype("<i4")


class FramePart(NamedTuple):
    """A part of a frame: one array.

    Args:
        suffix: the suffix of its columns' names: ``""``, or ``/KEY`` of an observation of several
            parts.
        dtype: the dtype in which it is stored.
        shape: the shape of one frame.
    """

    suffix: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FrameStack:
    """The form of observations that are sent and stored once.

    Args:
        stack: S, frames of an observation; 1: an observation is one frame.
        parts: the parts of a frame.
    """

    stack: int
    parts: tuple[FramePart, ...]

    @classmethod
    def of_space(cls, space: gym.Space[Any], stack: int = 1) -> FrameStack:
        """The form of a space's observations, whose first axis is the stack where S is above 1."""
        from vedette_rl.envs.spaces import observation_columns  # it imports gymnasium

        return cls(
            stack,
            tuple(
                FramePart(leaf.name.removeprefix("obs"), leaf.dtype, leaf.shape[stack > 1 :])
                for leaf in observation_columns(space)
            ),
        )

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return sum(math.prod(part.shape) * part.dtype.itemsize for part in self.parts)

    @property
    def places_shape(self) -> tuple[int, ...]:
        """The shape of a row's places of one observation."""
        return (self.stack,) if self.stack > 1 else ()

    @property
    def places_per_row(self) -> int:
        """Places that a row holds."""
        return self.stack * len(STACKS)

    def columns(self, prefix: str) -> dict[str, FramePart]:
        """The parts by the names of their columns: ``obs/KEY``, ``frames/KEY``."""
        return {prefix + part.suffix: part for part in self.parts}


def frame_stack(config: ReplayConfig, spaces: Spaces) -> FrameStack | None:
    """The observations that a replay stores once; None: it stores them whole."""
    if config.frame_storage == "plain":
        return None
    shape = spaces.observation.shape
    stack = spaces.stack if spaces.stack > 1 and shape is not None and len(shape) > 1 else 1
    frames = FrameStack.of_space(spaces.observation, stack)
    is_pictures = stack > 1 and frames.parts[0].dtype == np.uint8 and len(shape or ()) > 2
    if config.frame_storage == "once" or is_pictures or stack * frames.frame_bytes >= ONCE_BYTES:
        return frames
    return None


def split_name(name: str) -> tuple[str, str]:
    """The part of a transition that a column belongs to, and its suffix: ``obs`` and ``/KEY``."""
    part, slash, key = name.partition("/")
    return part, slash + key


def whole_observations(transitions: Mapping[str, Any], frames: Mapping[str, Any]) -> Columns:
    """Transitions with whole observations in place of places in `frames`: copies."""
    whole: Columns = {}
    for name, column in transitions.items():
        if name in STACKS:
            for key, of_part in frames.items():
                whole[name + key.removeprefix(FRAMES)] = of_part[column]
        elif name not in frames:
            whole[name] = column
    return whole


def row_with_places(row: np.dtype[Any], frames: FrameStack) -> np.dtype[Any]:
    """A transition's row as it travels: places for observations."""
    return _replaced(row, _PLACES, frames)


def stored_row(row: np.dtype[Any], frames: FrameStack) -> np.dtype[Any]:
    """A row as the ring holds it: places in the ring of frames, and the batch's span.

    Args:
        row: the row of a replay that stores observations whole.
        frames: the stacks that observations consist of.
    """
    replaced = _replaced(row, _STORED_PLACES, frames)
    assert replaced.fields is not None
    fields = [(name, field.base, field.shape) for name, (field, *_) in replaced.fields.items()]
    return row_dtype([*fields, (FRAME_SPANS, np.dtype("<i8"), (2,))])


def make_frame_ring_spec(
    frames: FrameStack,
    capacity: int,
    *,
    guard: int,
    extra_frames: int,
    rows_per_batch: int,
    keep: int = 0,
) -> SharedSpec:
    """The ring of frames beside the rows of a replay.

    A row can be drawn as long as its batch's frames are there. With as many as are kept here that
    is as long as the row is, unless episodes are very short: then somewhat fewer rows are live.

    Args:
        frames: the stacks that observations consist of.
        capacity: rows that can be drawn.
        guard: rows that may be appended before a commit.
        extra_frames: frames that a batch has beyond one a row: what a stack and n steps need
            more, of each environment of an actor.
        rows_per_batch: the rows of a full batch.
        keep: rows before those that can be drawn that are left alone.
    """
    # No batch has more frames than places, whatever its environments show.
    largest = rows_per_batch * frames.places_per_row
    starts = EPISODE_STARTS_SHARE if frames.stack > 1 else OBSERVATION_STARTS_SHARE
    share = 1 + starts + extra_frames / rows_per_batch
    # The oldest batch is kept whole as long as one of its rows is live.
    kept = max(largest, math.ceil((capacity + rows_per_batch) * share))
    columns = tuple(
        ColumnSpec(name, part.dtype.str, part.shape)
        for name, part in frames.columns(FRAMES).items()
    )
    return SharedSpec(columns, kept, max(largest, guard), math.ceil(keep * share))


def _replaced(row: np.dtype[Any], places: np.dtype[Any], frames: FrameStack) -> np.dtype[Any]:
    assert row.fields is not None, "a row dtype is structured"
    fields: dict[str, tuple[str, np.dtype[Any], tuple[int, ...]]] = {}
    for name, (field, *_) in row.fields.items():
        part, _ = split_name(name)
        if part in STACKS:
            fields[part] = (part, places, frames.places_shape)
        else:
            fields[name] = (name, field.base, field.shape)
    return row_dtype(list(fields.values()))
