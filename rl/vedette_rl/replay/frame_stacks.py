"""Frame deduplication: stacked images are sent and stored frame by frame, each frame once.

An observation that is a stack of S frames shares S - 1 of them with its successor, and a transition
holds two: stored whole, every frame is there 2 S times. Here a batch carries each of its frames
once, and a row the *places* of those that its stacks are made of::

    frames     (entries, *frame)      of the whole batch
    obs        (rows, S) uint32       places in `frames`, oldest first
    next_obs   (rows, S) uint32

Order, loss and repetition of batches cost nothing extra, since a batch needs no other. The price is
that the frames which two batches share are in both.

frame         one image; a *stack* is the S images of an observation (`FrameStack`)
place         the index of a frame: in a batch's `frames`, in an actor's pool, or in the ring
frame pool    the frames that an actor's environments showed last (`vedette_rl.steps.frames`)
extra frames  frames of a batch beyond one a row: for whole stacks, and for n steps
shared ring   the frames in the replay, a ring of their own beside the rows (`SharedSpec`); its
              *entries* are frames (`vedette_rl.replay.frame_ring`)
frame span    the frames of a row's batch, counted over the run: [begin, end)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette_rl.core.columns import row_dtype
from vedette_rl.errors import FrameStorageError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.manifest import SharedSpec

if TYPE_CHECKING:  # it imports gymnasium
    from vedette_rl.envs.spaces import Spaces

FRAMES = "frames"
"""The column of a batch that its rows share."""

STACKS = ("obs", "next_obs")
"""The columns that hold places of frames."""

FRAME_SPANS = "frame_span"
"""The stored column of a row's batch: the span [begin, end) of its frames, counted over the run."""

EPISODE_STARTS_SHARE = 0.05
"""Frames kept beyond a frame a row and a batch's extra ones, for those that begin episodes."""

_PLACES = np.dtype("<u4")
_STORED_PLACES = np.dtype("<i4")


@dataclass(frozen=True, slots=True)
class FrameStack:
    """The form of observations that are stacks of frames.

    Args:
        stack: S, frames of an observation.
        dtype: of a frame.
        shape: of a frame.
    """

    stack: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def places_per_row(self) -> int:
        """Places that a row holds."""
        return self.stack * len(STACKS)


def frame_stack(config: ReplayConfig, spaces: Spaces) -> FrameStack | None:
    """The stacks that a replay stores frame by frame; None: it stores observations whole.

    Raises:
        FrameStorageError: it is to store frames once, and there are none.
    """
    if config.frame_storage == "plain":
        return None
    space, shape = spaces.observation, spaces.observation.shape
    if spaces.stack < 2 or shape is None or len(shape) < 2:
        if config.frame_storage == "once":
            raise FrameStorageError(f"{space} is no stack of frames", "set env.frame_stack")
        return None
    dtype = np.dtype(space.dtype)
    if config.frame_storage == "auto" and not (dtype == np.uint8 and len(shape) > 2):
        return None
    stored = np.dtype(np.float32) if dtype == np.float64 else dtype
    return FrameStack(spaces.stack, stored, tuple(shape[1:]))


def row_with_places(row: np.dtype[Any], stack: int) -> np.dtype[Any]:
    """A transition's row as it travels: places for stacks."""
    return _replaced(row, _PLACES, stack)


def stored_row(row: np.dtype[Any], stack: int) -> np.dtype[Any]:
    """A row as the ring holds it: places in the ring of frames for stacks, and the batch's span.

    Args:
        row: of a replay that stores stacks whole.
        stack: S.
    """
    replaced = _replaced(row, _STORED_PLACES, stack)
    assert replaced.fields is not None
    fields = [(name, field.base, field.shape) for name, (field, *_) in replaced.fields.items()]
    return row_dtype([*fields, (FRAME_SPANS, np.dtype("<i8"), (2,))])


def make_frame_ring_spec(
    frames: FrameStack, capacity: int, *, guard: int, extra_frames: int, rows_per_batch: int
) -> SharedSpec:
    """The ring of frames beside the rows of a replay.

    A row can be drawn as long as its batch's frames are there. With as many as are kept here that
    is as long as the row is, unless episodes are very short: then somewhat fewer rows are live.

    Args:
        frames: how observations are made of them.
        capacity: rows that can be drawn.
        guard: rows that may be appended before a commit.
        extra_frames: frames that a batch has beyond one a row: what a stack and n steps need
            more, of each environment of an actor.
        rows_per_batch: of a full batch.
    """
    # No batch has more frames than places, whatever its environments show.
    largest = rows_per_batch * frames.places_per_row
    share = 1 + EPISODE_STARTS_SHARE + extra_frames / rows_per_batch
    # The oldest batch is kept whole as long as one of its rows is live.
    kept = max(largest, math.ceil((capacity + rows_per_batch) * share))
    return SharedSpec(FRAMES, frames.dtype.str, frames.shape, kept, max(largest, guard))


def _replaced(row: np.dtype[Any], places: np.dtype[Any], stack: int) -> np.dtype[Any]:
    assert row.fields is not None, "a row dtype is structured"
    return row_dtype(
        [
            (name, places, (stack,)) if name in STACKS else (name, field.base, field.shape)
            for name, (field, *_) in row.fields.items()
        ]
    )
