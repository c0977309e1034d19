"""Frame deduplication in an actor: step processors over stacks of frames, without copies of stacks.

The observations of an actor's environments are kept in a pool, a frame at a time, and the step
processor is given *places* in the pool instead of stacks: arrays of S numbers instead of S images.
A frame is recognized because a successor is its predecessor moved by one, which is compared byte
for byte; where it is not so (an episode began), the stack is stored anew. So the transitions are
exact for any environment, and small for those that stack.

Letters: E environments, S frames of a stack.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step, StepProcessor
from vedette_rl.replay.frame_stacks import STACKS, FrameStack


class FramePool:
    """The last frames of E environments, a ring of slots for each environment.

    Args:
        frames: how observations are made of them.
        envs: E.
        n_step: steps that a transition spans at most.

    Attributes:
        frames: ``(E * depth, *frame)``.
        numbers: ``(E * depth,)``: the number of the frame at each place; no two are the same.
    """

    def __init__(self, frames: FrameStack, envs: int, n_step: int) -> None:
        self._stack = frames.stack
        # Of one step at most two whole stacks are new, a successor and a beginning; and a
        # transition's first stack was stored up to n + 1 steps before it comes out.
        self._depth = 2 * frames.stack * (n_step + 2)
        self.frames = np.zeros((envs * self._depth, *frames.shape), frames.dtype)
        self.numbers = np.full(len(self.frames), -1, np.int64)
        self._next = np.zeros(envs, np.int64)
        self._stored = 0

    def store(self, env: int, frame: NDArray[Any]) -> int:
        """Keep a frame of an environment; its place."""
        return int(self.store_frames(np.array([env]), frame[np.newaxis])[0])

    def store_frames(self, envs: NDArray[np.intp], frames: NDArray[Any]) -> NDArray[np.int64]:
        """Keep one frame of each of these environments; their places."""
        places: NDArray[np.int64] = envs * self._depth + self._next[envs]
        self._next[envs] = (self._next[envs] + 1) % self._depth
        self.frames[places] = frames
        self.numbers[places] = self._stored + np.arange(len(places))
        self._stored += len(places)
        return places

    def store_stack(self, env: int, stack: NDArray[Any]) -> NDArray[np.int64]:
        """Keep a whole stack ``(S, *frame)``; a frame that is its predecessor again only once."""
        places = np.empty(self._stack, np.int64)
        for i, frame in enumerate(stack):
            again = i and frame.tobytes() == stack[i - 1].tobytes()
            places[i] = places[i - 1] if again else self.store(env, frame)
        return places


class FrameSteps:
    """A `StepProcessor` whose transitions hold places in `pool` for stacks.

    Args:
        inner: made for rows of places (`vedette_rl.replay.frame_stacks.row_with_places`).
        frames: how observations are made of frames.
        envs: E.
        n_step: steps that a transition of `inner` spans at most.
    """

    def __init__(self, inner: StepProcessor, frames: FrameStack, envs: int, n_step: int) -> None:
        self._inner = inner
        self.pool = FramePool(frames, envs, n_step)
        self._seen: NDArray[np.int64] | None = None  # (E, S): what the policy sees now

    def process(self, step: Step) -> Columns:
        """The transitions that this step completes, stacks as places."""
        obs, next_obs = step.obs["obs"], step.next_obs["obs"]
        if self._seen is None:
            self._seen = self._store_all(obs)
        seen = self._seen
        following = np.empty_like(seen)
        following[:, :-1] = seen[:, 1:]
        moved = is_shifted(obs, next_obs)
        following[moved, -1] = self.pool.store_frames(np.flatnonzero(moved), next_obs[moved, -1])
        for env in np.flatnonzero(~moved).tolist():
            following[env] = self.pool.store_stack(env, next_obs[env])
        beginning = following
        done = step.terminated | step.truncated
        if done.any():
            beginning = following.copy()
            for env in np.flatnonzero(done).tolist():
                beginning[env] = self.pool.store_stack(env, step.init_obs["obs"][env])
        self._seen = beginning
        return self._inner.process(
            replace(
                step,
                obs={"obs": seen.astype(np.uint32)},
                next_obs={"obs": following.astype(np.uint32)},
                init_obs={"obs": beginning.astype(np.uint32)},
            )
        )

    def flush(self) -> Columns:
        """Return unfinished transitions, of fewer steps."""
        return self._inner.flush()

    def with_whole_stacks(self, transitions: Columns) -> Columns:
        """The same transitions with whole stacks: copies. For what `process` returned last."""
        return {
            name: self.pool.frames[column] if name in STACKS else column
            for name, column in transitions.items()
        }

    def _store_all(self, obs: NDArray[Any]) -> NDArray[np.int64]:
        return np.array([self.pool.store_stack(env, stack) for env, stack in enumerate(obs)])


def is_shifted(obs: NDArray[Any], next_obs: NDArray[Any]) -> NDArray[np.bool_]:
    """True ``(E,)`` for stacks ``(E, S, *frame)`` whose successor begins with all but their oldest
    frame, to the last bit."""
    envs, stack = obs.shape[:2]
    before = np.ascontiguousarray(obs).reshape(envs, -1).view(np.uint8)
    after = np.ascontiguousarray(next_obs).reshape(envs, -1).view(np.uint8)
    frame = before.shape[1] // stack
    if frame % 8 == 0:  # the same, eight bytes at once
        before, after, frame = before.view(np.uint64), after.view(np.uint64), frame // 8
    return np.asarray((before[:, frame:] == after[:, :-frame]).all(axis=1))
