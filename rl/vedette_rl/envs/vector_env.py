"""Vectors of environments: what all have in common, and those of single environments, stepped one
after another or side by side."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step
from vedette_rl.core.columns import INTERVENED, copy_columns
from vedette_rl.envs.description import EnvDescription, describe_environment
from vedette_rl.envs.layout import (
    ActionConverter,
    Intervention,
    ObservationLayout,
    RewardTransform,
    find_intervention,
    read_flags,
)
from vedette_rl.envs.spaces import agent_spaces

Env = gym.Env[Any, Any]


class EpisodeReturns:
    """Sums the true rewards of each environment's episode.

    ::

        returns.add(reward)             # every step
        returns.end(done)               # where episodes ended with it
        returns.pop_finished()          # now and then
    """

    def __init__(self, count: int) -> None:
        self._returns = np.zeros(count, np.float64)
        self._steps = 0
        self._began = np.zeros(count, np.int64)
        self._finished: list[tuple[float, int]] = []

    def reset(self) -> None:
        """Drop unfinished episodes: all environments were reset."""
        self._returns.fill(0.0)
        self._began.fill(self._steps)

    def add(self, reward: NDArray[Any], valid: NDArray[Any] | None = None) -> None:
        """Count a step of all environments.

        Args:
            reward: ``(E,)`` true rewards.
            valid: ``(E,)`` bool, which rows stepped and did not only reset; None means all.
        """
        self._steps += 1
        if valid is None:
            self._returns += reward
        else:
            np.add(self._returns, reward, out=self._returns, where=valid)
            self._began[~valid] = self._steps

    def end(self, done: NDArray[Any]) -> None:
        """The episodes of the environments marked in `done` ``(E,)`` ended with this step."""
        for i in np.flatnonzero(done):
            self._finished.append((float(self._returns[i]), int(self._steps - self._began[i])))
        self._returns[done] = 0.0
        self._began[done] = self._steps

    def drop(self, which: NDArray[Any]) -> None:
        """Drop the unfinished episodes of these environments ``(E,)``: they began new ones."""
        self._returns[which] = 0.0
        self._began[which] = self._steps

    def pop_finished(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call."""
        finished = self._finished
        self._finished = []
        return finished


class VectorEnvironment:
    """E environments stepped together.

    ::

        envs = make_vector_environment(config, count=8, seed=0)
        obs = envs.reset()
        while not stopped:
            step = envs.step(policy.act(obs, explore=True))
            ...
            obs = step.init_obs
            returns_and_lengths = envs.pop_finished_episodes()
        envs.close()

    Args:
        observation: the space of one environment.
        action: likewise.
        count: E.
        rewards: the conversion of rewards for transitions.
    """

    def __init__(
        self,
        observation: gym.Space[Any],
        action: gym.Space[Any],
        count: int,
        rewards: RewardTransform | None,
    ) -> None:
        self.spaces = agent_spaces(observation, action)
        self._count = count
        self._layout = ObservationLayout(observation)
        self._actions = ActionConverter(action, count)
        self._rewards = rewards or RewardTransform()
        self._returns = EpisodeReturns(count)
        # What was seen, its successor and the new episodes' beginnings: three buffers in turn,
        # so that a step's arrays are not overwritten before the next step.
        self._buffers = [self._layout.empty(count) for _ in range(3)]
        self._current = -1
        self._reward = np.zeros(count, np.float32)
        self._intervened = np.zeros(count, np.bool_)
        self.marks_interventions = False
        """Steps have the column `INTERVENED`."""

    def __len__(self) -> int:
        return self._count

    def reset(self) -> Columns:
        """Begin new episodes everywhere; the first call seeds, later ones continue from there.

        Returns:
            columns ``obs...`` of ``(E, *shape)``, valid until the next step.
        """
        raise NotImplementedError

    def step(self, action: NDArray[Any]) -> Step:
        """Step every environment; where an episode ends a new one begins."""
        raise NotImplementedError

    def pop_finished_episodes(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call: true rewards, before
        any scaling or clipping."""
        return self._returns.pop_finished()

    def attribute(self, name: str) -> Any:
        """An attribute of an environment, the first of them; None where it has none."""
        raise NotImplementedError

    def transform_rewards(self, true: NDArray[Any], out: NDArray[Any]) -> None:
        """Write what true rewards become in transitions into `out` (float32)."""
        self._rewards.write(true, out)

    def close(self) -> None:
        """Close the environments."""
        raise NotImplementedError

    def _action_column(self, action: NDArray[Any]) -> NDArray[Any]:
        """The actions as they are stored, for environments that were reset."""
        if self._current < 0:
            raise RuntimeError("the environments were not reset before their first step")
        return self._actions.to_column(action)

    def _buffer(self, ahead: int) -> Columns:
        """The buffer of the step's successors (1), and that of its new episodes' beginnings (2)."""
        return self._buffers[(self._current + ahead) % 3]

    def _outcome(
        self,
        action: NDArray[Any],
        taken_over: Sequence[Intervention],
        terminated: NDArray[Any],
        truncated: NDArray[Any],
        valid: NDArray[Any],
        *,
        begins: bool,
    ) -> Step:
        """The step whose buffers and rewards are written, and move on.

        Args:
            action: the chosen ones, as they are stored.
            taken_over: environments, and the actions of a person that were executed instead.
            terminated, truncated, valid: ``(E,)``.
            begins: the beginnings' buffer is written, and acted on next; else the successors' is.
        """
        if taken_over:
            action = action.copy()
        if self.marks_interventions:
            self._intervened.fill(False)
        for row, executed in taken_over:
            action[row] = self._actions.from_environment(executed)
            self._intervened[row] = True
        seen = self._buffer(0)
        next_obs = self._buffer(1)
        self._current = (self._current + (2 if begins else 1)) % 3
        init_obs = self._buffer(0)
        return Step(
            obs=seen,
            action=action,
            reward=self._reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            init_obs=init_obs,
            valid=valid,
            extra={INTERVENED: self._intervened} if self.marks_interventions else {},
        )


class EnvGroup:
    """Environments of the same spaces that are reset and stepped together.

    A subclass says how: one after another, in threads, in processes. Seeds, episodes and returns
    belong to the object that holds the group, so that they are the same for all subclasses.

    Args:
        description: of each.
        count: E.
    """

    def __init__(self, description: EnvDescription, count: int) -> None:
        self.description = description
        self.layout = ObservationLayout(description.observation_space)
        self.reward = np.zeros(count, np.float64)
        """True rewards of the last step, from row 0 on."""
        self.terminated = np.zeros(count, np.bool_)
        self.truncated = np.zeros(count, np.bool_)
        self.interventions: list[Intervention] = []
        """The interventions of the last step."""

    def __len__(self) -> int:
        return len(self.reward)

    def reset(
        self, which: Sequence[int], seeds: Sequence[int | None], obs: Columns, rows: Sequence[int]
    ) -> None:
        """Begin an episode in the environments `which`; write their observations into `rows`."""
        raise NotImplementedError

    def step(self, actions: NDArray[Any], obs: Columns, which: Sequence[int] | None = None) -> bool:
        """Step all environments, or those of `which`, and write row k for the k-th.

        Args:
            actions: actions in the environments' form.
            obs: a row for each.

        Returns:
            True if an episode ended.

        Raises:
            Exception: whatever one of them raised, with a note of which.
        """
        raise NotImplementedError

    def attribute(self, name: str) -> Any:
        """An attribute of one of them, or of an environment that is made for it.

        Raises:
            AttributeError: they have none of this name.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the environments."""
        raise NotImplementedError

    def _note(self, error: BaseException, i: int, env: object = "") -> None:
        error.add_note(f"in environment {i} of {len(self)}{f': {env}' if env else ''}")


class _LocalEnvs(EnvGroup):
    """Environments of this process.

    Args:
        envs: E environments of the same spaces.
    """

    def __init__(self, envs: Sequence[Env]) -> None:
        super().__init__(describe_environment(envs[0]), len(envs))
        self.envs = list(envs)
        self._flagged = False  # a flag may be set

    def attribute(self, name: str) -> Any:
        return self.envs[0].get_wrapper_attr(name)

    def _write(self, results: Sequence[tuple[Any, ...]], obs: Columns) -> bool:
        """Write what the environments returned. One assignment a column: a place at a time costs
        half as much again."""
        seen, reward, terminated, truncated, infos = zip(*results, strict=True)
        count = len(seen)
        if self.interventions:
            self.interventions = []
        if any(infos):
            interventions = (
                (row, find_intervention(info)) for row, info in enumerate(infos) if info
            )
            self.interventions = [
                (row, action) for row, action in interventions if action is not None
            ]
        self.layout.write_rows(obs, seen)
        self.reward[:count] = reward
        terminated, truncated = read_flags(self.envs[0], terminated, truncated)
        ended = True in terminated or True in truncated
        if ended or self._flagged:
            self.terminated[:count] = terminated
            self.truncated[:count] = truncated
            self._flagged = ended or count < len(self)  # rows behind keep what they had
        return ended


class SerialEnvs(_LocalEnvs):
    """Steps environments one after another.

    Args:
        envs: E environments of the same spaces; closed with the group.
    """

    def __init__(self, envs: Sequence[Env]) -> None:
        super().__init__(envs)
        self._steps = [env.step for env in envs]

    def reset(
        self, which: Sequence[int], seeds: Sequence[int | None], obs: Columns, rows: Sequence[int]
    ) -> None:
        for i, seed, row in zip(which, seeds, rows, strict=True):
            self.layout.write(obs, row, self.envs[i].reset(seed=seed)[0])

    def step(self, actions: NDArray[Any], obs: Columns, which: Sequence[int] | None = None) -> bool:
        steps = self._steps if which is None else [self._steps[i] for i in which]
        results: list[tuple[Any, ...]] = []
        try:
            for step, action in zip(steps, actions, strict=True):
                results.append(step(action))
        except Exception as e:
            i = len(results) if which is None else which[len(results)]
            self._note(e, i, self.envs[i])
            raise
        return self._write(results, obs)

    def close(self) -> None:
        for env in self.envs:
            env.close()


Call = tuple[int, Callable[[], Any]]
"""An environment's number, and a function for its thread to call."""

_CLOSE_S = 10.0


class ThreadedEnvs(_LocalEnvs):
    """Steps environments side by side, each in a thread of its own.

    This gains time where a step waits, or computes without Python's global lock. An environment is
    made, stepped and closed in one and the same thread: graphics contexts and databases want that.

    Args:
        make: makes an environment; called E times, in one thread after the other.
        count: E.
    """

    def __init__(self, make: Callable[[], Env], count: int) -> None:
        self._calls: list[SimpleQueue[Callable[[], Any] | None]] = []
        self._results: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
        self._threads: list[Thread] = []
        for i in range(count):
            self._calls.append(SimpleQueue())
            serve = Thread(target=self._serve, args=(i,), name=f"environment-{i}", daemon=True)
            self._threads.append(serve)
            serve.start()
        self.envs: list[Env] = []
        try:
            for i in range(count):
                self.envs += self._run([(i, make)])
        except BaseException:
            self.close()
            raise
        super().__init__(self.envs)

    def _serve(self, i: int) -> None:
        while (call := self._calls[i].get()) is not None:
            try:
                self._results.put((i, call(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
                self._results.put((i, None, error))

    def _run(self, calls: Sequence[Call]) -> list[Any]:
        """Make calls side by side; return their results in order, or raise the first error."""
        for i, call in calls:
            self._calls[i].put(call)
        results: dict[int, tuple[Any, BaseException | None]] = {}
        for _ in calls:  # an actor that waits here for too long is killed by its manager
            i, result, error = self._results.get()
            results[i] = result, error
        for i, _ in calls:
            if (failed := results[i][1]) is not None:
                raise failed
        return [results[i][0] for i, _ in calls]

    def reset(
        self, which: Sequence[int], seeds: Sequence[int | None], obs: Columns, rows: Sequence[int]
    ) -> None:
        begun = self._run(
            [
                (i, partial(self.envs[i].reset, seed=seed))
                for i, seed in zip(which, seeds, strict=True)
            ]
        )
        for row, (first, _) in zip(rows, begun, strict=True):
            self.layout.write(obs, row, first)

    def step(self, actions: NDArray[Any], obs: Columns, which: Sequence[int] | None = None) -> bool:
        chosen = range(len(self)) if which is None else which
        calls = [(i, partial(self._step, i, a)) for i, a in zip(chosen, actions, strict=True)]
        return self._write(self._run(calls), obs)

    def _step(self, i: int, action: Any) -> Any:
        try:
            return self.envs[i].step(action)
        except Exception as error:
            self._note(error, i, self.envs[i])
            raise

    def close(self) -> None:
        """Close the environments, all of them, and end their threads.

        An error or Ctrl-C that is why they are closed gets a note of what is raised without it.

        Raises:
            BaseException: the first that one of them raised.
            TimeoutError: one does not come back from its step, or does not close.
        """
        for i, env in enumerate(self.envs):
            self._calls[i].put(env.close)
        for calls in self._calls:
            calls.put(None)
        deadline = time.monotonic() + _CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        failed: dict[int, BaseException] = {}
        while not self._results.empty():
            i, _, error = self._results.get()
            if error is not None:
                error.add_note(f"in environment {i} of {len(self._calls)}, when it was closed")
                failed[i] = error
        for i, thread in enumerate(self._threads):
            if thread.is_alive():
                failed[i] = TimeoutError(f"environment {i} has not closed within {_CLOSE_S:g} s")
        self.envs = []
        why = sys.exception()
        for i in sorted(failed):
            if why is None:
                raise failed[i]
            why.add_note(f"closing the environments failed, too: {failed[i]!r}")


class LoopVectorEnv(VectorEnvironment):
    """Steps a group of environments of its own.

    An environment whose episode ends is reset within the same step, so no step is wasted, and what
    Gymnasium's vector environments cost beyond the environments themselves is not paid:
    observations are written straight into preallocated columns. The same seed gives the same
    trajectories however the group is stepped.

    Args:
        envs: a group, or E environments of the same spaces; closed with the vector.
        seed: the seed of the whole vector: each environment's own is derived from it.
        rewards: the conversion of rewards for transitions.
    """

    def __init__(
        self, envs: EnvGroup | Sequence[Env], *, seed: int, rewards: RewardTransform | None = None
    ):
        group = envs if isinstance(envs, EnvGroup) else SerialEnvs(envs)
        env = group.description
        super().__init__(env.observation_space, env.action_space, len(group), rewards)
        self.group = group
        words = np.random.SeedSequence(seed).generate_state(len(group))
        self._seeds: list[int | None] = [int(word >> 1) for word in words]  # some want 31 bits
        self._valid = np.ones(len(group), np.bool_)

    def reset(self) -> Columns:
        self._current = 0
        everywhere = range(len(self))
        self.group.reset(everywhere, self._seeds, self._buffers[0], everywhere)
        self._seeds = [None] * len(self)
        self._returns.reset()
        return self._buffers[0]

    def step(self, action: NDArray[Any]) -> Step:
        """Step every environment; an exception of one comes out as it is, with a note of which."""
        action = self._action_column(action)
        group = self.group
        next_obs = self._buffer(1)
        ended = group.step(self._actions.to_environment(action), next_obs)
        self._rewards.write(group.reward, self._reward)
        self._returns.add(group.reward)
        if ended:
            self._reset_ended(next_obs, self._buffer(2))
        return self._outcome(
            action,
            group.interventions,
            group.terminated,
            group.truncated,
            self._valid,
            begins=ended,
        )

    def _reset_ended(self, next_obs: Columns, init_obs: Columns) -> None:
        done = self.group.terminated | self.group.truncated
        self._returns.end(done)
        copy_columns(next_obs, init_obs)
        ended = np.flatnonzero(done).tolist()
        self.group.reset(ended, [None] * len(ended), init_obs, ended)

    def attribute(self, name: str) -> Any:
        try:
            return self.group.attribute(name)
        except AttributeError:
            return None

    def close(self) -> None:
        self.group.close()
