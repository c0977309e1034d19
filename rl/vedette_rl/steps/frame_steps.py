"""Observations stored once in an actor: step processors over places of frames, without copies.

The observations of an actor's environments are kept in a pool, a frame at a time, and the step
processor is given *places* in the pool instead of observations. Of stacks, a frame is recognized
because a successor is its predecessor moved by one, which is compared byte for byte; where it is
not so (an episode began), the whole stack is stored. An observation that is no stack is one frame:
a successor, and what the next transition begins with. So the transitions are exact for any
environment. `vedette_rl.replay.frame_stacks` has the words.

Letters: E environments, S frames of a stack.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step, StepProcessor
from vedette_rl.replay.frame_stacks import FRAMES, FrameStack, whole_observations


class FramePool:
    """The last frames of E environments, a ring of slots for each environment.

    Args:
        frames: the stacks that observations consist of.
        envs: E.
        n_step: steps that a transition spans at most.

    Attributes:
        frames: ``(E * depth, *shape)``, of each part.
        numbers: ``(E * depth,)``: the number of the frame at each place; no two are the same.
    """

    def __init__(self, frames: FrameStack, envs: int, n_step: int) -> None:
        self._stack = frames.stack
        # Of one step at most two whole stacks are new, a successor and a beginning; and a
        # transition's first stack was stored up to n + 1 steps before it comes out.
        self._depth = 2 * frames.stack * (n_step + 2)
        self.frames: Columns = {
            name: np.zeros((envs * self._depth, *part.shape), part.dtype)
            for name, part in frames.columns(FRAMES).items()
        }
        self.numbers = np.full(envs * self._depth, -1, np.int64)
        self._next = np.zeros(envs, np.int64)
        self._stored = 0

    def store_frames(self, envs: NDArray[np.intp], frames: Columns) -> NDArray[np.int64]:
        """Keep one frame of each of these environments; their places."""
        places: NDArray[np.int64] = envs * self._depth + self._next[envs]
        self._next[envs] = (self._next[envs] + 1) % self._depth
        for name, column in frames.items():
            self.frames[name][places] = column
        self.numbers[places] = self._stored + np.arange(len(places))
        self._stored += len(places)
        return places

    def store_stack(self, env: int, stacks: Columns) -> NDArray[np.int64]:
        """Keep the whole stack of an environment, of the stacks ``(E, S, *shape)`` of all; a frame
        that is its predecessor again only once."""
        places = np.empty(self._stack, np.int64)
        for i in range(self._stack):
            frame = {name: column[env : env + 1, i] for name, column in stacks.items()}
            again = i and all(
                column[env, i].tobytes() == column[env, i - 1].tobytes()
                for column in stacks.values()
            )
            places[i] = places[i - 1] if again else self.store_frames(np.array([env]), frame)[0]
        return places


class FrameSteps:
    """A `StepProcessor` whose transitions hold places in `pool` for observations.

    Args:
        inner: made for rows of places (`vedette_rl.replay.frame_stacks.row_with_places`).
        frames: the stacks that observations consist of.
        envs: E.
        n_step: steps that a transition of `inner` spans at most.
    """

    def __init__(self, inner: StepProcessor, frames: FrameStack, envs: int, n_step: int) -> None:
        self._inner = inner
        self._frames = frames
        self.pool = FramePool(frames, envs, n_step)
        self._seen: NDArray[np.int64] | None = None  # (E, S): what the policy sees now

    def process(self, step: Step) -> Columns:
        """The transitions that this step completes, observations as places."""
        obs, next_obs = self._stacks(step.obs), self._stacks(step.next_obs)
        if self._seen is None:
            envs = range(len(step.reward))
            self._seen = np.array([self.pool.store_stack(env, obs) for env in envs])
        seen = self._seen
        following = self._follow(seen, obs, next_obs)
        beginning = following
        done = step.terminated | step.truncated
        if done.any():
            beginning = following.copy()
            init_obs = self._stacks(step.init_obs)
            for env in np.flatnonzero(done).tolist():
                beginning[env] = self.pool.store_stack(env, init_obs)
        self._seen = beginning
        return self._inner.process(
            replace(
                step,
                obs=self._places(seen),
                next_obs=self._places(following),
                init_obs=self._places(beginning),
            )
        )

    def _follow(
        self, seen: NDArray[np.int64], obs: Columns, next_obs: Columns
    ) -> NDArray[np.int64]:
        """The places of the successors ``(E, S)``, whose new frames are kept."""
        following = np.empty_like(seen)
        following[:, :-1] = seen[:, 1:]
        moved = np.ones(len(seen), np.bool_)
        if self._frames.stack > 1:
            for name, column in obs.items():
                moved &= is_shifted(column, next_obs[name])
        newest = {name: column[moved, -1] for name, column in next_obs.items()}
        following[moved, -1] = self.pool.store_frames(np.flatnonzero(moved), newest)
        for env in np.flatnonzero(~moved).tolist():
            following[env] = self.pool.store_stack(env, next_obs)
        return following

    def _stacks(self, obs: Columns) -> Columns:
        """The columns of all environments as stacks ``(E, S, *shape)``, under the names of frames:
        views."""
        parts = self._frames.parts
        stacks = {FRAMES + part.suffix: obs["obs" + part.suffix] for part in parts}
        if self._frames.stack > 1:
            return stacks
        return {name: column[:, np.newaxis] for name, column in stacks.items()}

    def _places(self, places: NDArray[np.int64]) -> Columns:
        shape = (len(places), *self._frames.places_shape)
        return {"obs": places.astype(np.uint32).reshape(shape)}

    def flush(self) -> Columns:
        """Return unfinished transitions, of fewer steps."""
        self._seen = None  # the next transitions may begin with another observation
        return self._inner.flush()

    def with_whole_stacks(self, transitions: Columns) -> Columns:
        """The same with whole observations: copies. For what `process` returned last."""
        return whole_observations(transitions, self.pool.frames)


def is_shifted(obs: NDArray[Any], next_obs: NDArray[Any]) -> NDArray[np.bool_]:
    """True ``(E,)`` for stacks ``(E, S, *frame)`` whose successor begins with all but their oldest
    frame, to the last bit."""
    envs, stack = obs.shape[:2]
    before = np.ascontiguousarray(obs).reshape(envs, -1).view(np.uint8)
    after = np.ascontiguousarray(next_obs).reshape(envs, -1).view(np.uint8)
    frame = before.shape[1] // stack
    if frame % 8 == 0:  # the same, eight bytes at once
        before = before.view(np.uint64)
        after = after.view(np.uint64)
        frame = frame // 8
    return np.asarray((before[:, frame:] == after[:, :-frame]).all(axis=1))
