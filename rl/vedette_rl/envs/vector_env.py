"""Vectors of environments: what all have in common, and those of single environments, stepped one
after another or side by side."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step
from vedette_rl.core.columns import INTERVENED, copy_columns
from vedette_rl.envs.call_places import call_places
from vedette_rl.envs.description import EnvDescription, describe_environment
from vedette_rl.envs.failures import EnvironmentFailure, FailureJudge, OnFailure
from vedette_rl.envs.layout import (
    ActionConverter,
    Intervention,
    ObservationLayout,
    RewardTransform,
    find_intervention,
    read_flags,
    read_rewards,
)
from vedette_rl.envs.process_guard import ProcessGuard
from vedette_rl.envs.shared_arrays import copied, share_memory
from vedette_rl.envs.slow_calls import SlowCall
from vedette_rl.envs.spaces import INSTANCES_DIFFER, RESET_CHANGED, KnownSpaces, agent_spaces
from vedette_rl.errors import EnvironmentFaultError, RlError, SpaceLayoutError

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
        self.refuses_interventions = False
        """Steps have the column `LOG_PROB`, and an action that is not the policy's has none."""
        self.on_failure: OnFailure | None = None
        """Told of each environment that fails and is made again."""
        self.lost: Sequence[int] = ()
        """Environments that failed in the last step and were made again: nothing of that step is a
        transition, and nothing that follows belongs to what was before."""

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

    def _fault_of_executed(self, chosen: NDArray[Any], executed: NDArray[Any]) -> str:
        """What is wrong with an executed action beside the policy's own; "" where nothing is."""
        if not self.refuses_interventions or self._actions.are_alike(chosen, executed):
            return ""
        return (
            f"not the policy's own, {chosen}, and this run's rows hold how likely its policy was "
            "to act so (log_prob), which nobody knows of another's action: let the environment "
            "not report it, or have an agent learn that takes any action (dqn, sac, td3)"
        )

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

        Raises:
            EnvironmentFaultError: another's action was executed, and is none of the space
                (`from_environment`), or `refuses_interventions`.
        """
        if taken_over:
            action = action.copy()
        if self.marks_interventions:
            self._intervened.fill(False)
        for row, executed in taken_over:
            try:
                column = self._actions.from_environment(executed)
            except ValueError as error:
                fault = f"action {executed}: {error}"
                raise EnvironmentFaultError("of interventions", fault) from error
            if valid[row] and (fault := self._fault_of_executed(action[row], column)):
                raise EnvironmentFaultError("of interventions", f"action {executed}: {fault}")
            action[row] = column
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
        self.keeps_failures = False
        """What an environment raises is kept in `failures`, and the others go on."""
        self.failures: list[tuple[int, Exception]] = []
        """Environments that failed in the last call, and what they raised; nothing of them was
        written."""

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def can_replace(self) -> bool:
        """True if an environment can be made again."""
        return False

    def replace(self, i: int) -> None:
        """Close an environment that has failed, and make another one in its place."""
        raise NotImplementedError

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
        make: makes another one; None: one that fails is not made again.
        guard: calls them.
    """

    def __init__(
        self, envs: Sequence[Env], make: Callable[[], Env] | None, guard: ProcessGuard | None
    ) -> None:
        super().__init__(describe_environment(envs[0]), len(envs))
        self._known = [KnownSpaces(envs[0]) for _ in envs]
        for i in range(1, len(envs)):
            self._check_alike(i, envs[i])
        self.layout.places = call_places(envs[0])
        self.envs = list(envs)
        self._make = make
        self._guard = guard or ProcessGuard()
        self._flagged = False  # a flag may be set
        self._shares = False
        """They give one array: what each gave is copied before the next is called."""
        self._was_stepped = len(envs) == 1
        """It is known whether their steps give one array."""

    @property
    def can_replace(self) -> bool:
        return self._make is not None

    def _check_alike(self, i: int, env: Env) -> None:
        """Check that an environment that was made has the spaces of the first.

        Raises:
            SpaceLayoutError: it has others.
        """
        try:
            self._known[i].check(env, INSTANCES_DIFFER)
        except SpaceLayoutError as error:
            self._note(error, i, env)
            raise

    def _check_spaces(self, which: Sequence[int]) -> None:
        """Check that resets have not changed the spaces.

        Raises:
            SpaceLayoutError: one has.
        """
        for i in which:
            self._known[i].check_replaced(self.envs[i], RESET_CHANGED)

    def attribute(self, name: str) -> Any:
        return self.envs[0].get_wrapper_attr(name)

    def _fail(self, i: int, error: Exception) -> None:
        """Keep what an environment has raised.

        Raises:
            Exception: it is not to be kept.
        """
        self._note(error, i, self.envs[i])
        if not self.keeps_failures:
            raise error
        self.failures.append((i, error))

    def _write_sound(
        self, results: Sequence[tuple[Any, ...] | None], obs: Columns, chosen: Sequence[int]
    ) -> bool:
        """Write what the environments returned that have not failed."""
        sound = [k for k, result in enumerate(results) if result is not None]
        count = len(results)
        self.reward[:count] = 0.0
        self.terminated[:count] = self.truncated[:count] = False
        self._flagged = True
        self.interventions = []
        for k in sound:
            seen, reward, terminated, truncated, info = results[k] or ()
            self.layout.write(obs, k, seen, origin="step()")
            env = self.envs[chosen[k]]
            (self.reward[k],) = read_rewards(env, (reward,))
            (self.terminated[k],), (self.truncated[k],) = read_flags(
                env, (terminated,), (truncated,)
            )
            if info and (action := find_intervention(info)) is not None:
                self.interventions.append((k, action))
        return bool(self.terminated[:count].any() or self.truncated[:count].any())

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
        self.layout.write_rows(obs, seen, origin="step()")
        self.reward[:count] = read_rewards(self.envs[0], reward)
        terminated, truncated = read_flags(self.envs[0], terminated, truncated)
        ended = True in terminated or True in truncated
        if ended or self._flagged:
            self.terminated[:count] = terminated
            self.truncated[:count] = truncated
            self._flagged = ended or count < len(self)  # rows behind keep what they had
        return ended


def _arrays_of(result: Any) -> Any:
    """What an environment returned without its info, which may hold anything."""
    return result[:-1] if isinstance(result, tuple) else None


def _copied_result(result: Any) -> Any:
    """What an environment returned, with copies of its arrays; its info is the same."""
    if not isinstance(result, tuple) or not result:
        return result  # what is wrong with it is found where it is read
    return (*copied(result[:-1]), result[-1])


class SerialEnvs(_LocalEnvs):
    """Steps environments one after another.

    Args:
        envs: E environments of the same spaces; closed with the group.
        make, guard: as `_LocalEnvs` has them.
    """

    def __init__(
        self,
        envs: Sequence[Env],
        make: Callable[[], Env] | None = None,
        guard: ProcessGuard | None = None,
    ) -> None:
        super().__init__(envs, make, guard)
        self._steps = [env.step for env in envs]

    def reset(
        self, which: Sequence[int], seeds: Sequence[int | None], obs: Columns, rows: Sequence[int]
    ) -> None:
        self.failures = []
        with SlowCall("reset"):
            begun = self._guard.call(self._reset_each, which, seeds)
        self._check_spaces(which)
        for row, first in zip(rows, begun, strict=True):
            if first is not None:
                self.layout.write(obs, row, first[0], origin="reset()")

    def _reset_each(
        self, which: Sequence[int], seeds: Sequence[int | None]
    ) -> list[tuple[Any, Any] | None]:
        begun: list[tuple[Any, Any] | None] = []
        for i, seed in zip(which, seeds, strict=True):
            try:
                # All may be written into one array. Episodes are long, and a copy is short.
                begun.append(_copied_result(self.envs[i].reset(seed=seed)))
            except Exception as error:  # noqa: BLE001 - an environment may raise anything
                self._fail(i, error)
                begun.append(None)
        return begun

    def step(self, actions: NDArray[Any], obs: Columns, which: Sequence[int] | None = None) -> bool:
        chosen = range(len(self)) if which is None else which
        if self.failures:
            self.failures = []
        alone = self._was_stepped and not self._shares
        step = self._step_each if alone else self._step_and_copy_each
        results = self._guard.call(step, actions, chosen)
        if self.failures:
            return self._write_sound(results, obs, chosen)
        return self._write(results, obs)

    def _step_and_copy_each(self, actions: NDArray[Any], chosen: Sequence[int]) -> list[Any]:
        given: list[Any] = []
        results: list[Any] = []
        for k, i in enumerate(chosen):
            given += self._step_each(actions[k : k + 1], (i,))
            results.append(_copied_result(given[-1]))
        if len(chosen) > 1 and not self._was_stepped:
            self._was_stepped = True
            self._shares = share_memory([_arrays_of(result) for result in given])
        return results

    def _step_each(self, actions: NDArray[Any], chosen: Sequence[int]) -> list[Any]:
        results: list[Any] = []
        steps = self._steps
        for i, action in zip(chosen, actions, strict=True):
            try:
                results.append(steps[i](action))
            except Exception as error:  # noqa: BLE001 - an environment may raise anything
                self._fail(i, error)
                results.append(None)
        return results

    def replace(self, i: int) -> None:
        assert self._make is not None, "`can_replace` says so"
        with suppress(Exception):  # it is broken
            self._guard.call(self.envs[i].close)
        with SlowCall("made"):
            env = self._guard.make(self._make)
        self._check_alike(i, env)
        self.envs[i] = env
        self._steps[i] = env.step

    def close(self) -> None:
        """Close the environments, all of them.

        Raises:
            Exception: the first that one of them raised.
        """
        with ExitStack() as closing:
            for env in reversed(self.envs):
                closing.callback(self._guard.call, env.close)


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
        guard: keeps what they do to the process, but for what is a thread's own, in them.
    """

    def __init__(
        self, make: Callable[[], Env], count: int, guard: ProcessGuard | None = None
    ) -> None:
        self._guard = guard = guard or ProcessGuard()
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
                self.envs.append(self._make_one(guard, i, make))
        except BaseException:
            self.close()
            raise
        super().__init__(self.envs, make, guard)

    def _make_one(self, guard: ProcessGuard, i: int, make: Callable[[], Env]) -> Env:
        """Make an environment in its thread.

        Raises:
            Exception: whatever it raised, with a note: it may want the main thread.
        """
        try:
            with SlowCall("made"):
                [env] = guard.make(self._run, [(i, make)])
        except RlError:  # it says itself what is wrong
            raise
        except Exception as error:
            _note_thread(error)
            raise
        return cast(Env, env)

    def _note(self, error: BaseException, i: int, env: object = "") -> None:
        super()._note(error, i, env)
        if "thread" in str(error).lower():
            _note_thread(error)

    def _serve(self, i: int) -> None:
        while (call := self._calls[i].get()) is not None:
            try:
                self._results.put((i, call(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
                self._results.put((i, None, error))

    def _run(self, calls: Sequence[Call], *, keeps: bool = False) -> list[Any]:
        """Make calls side by side; return their results in order, or raise the first error.

        Args:
            keeps: errors of environments are kept; their results are None.
        """
        for i, call in calls:
            self._calls[i].put(call)
        results: dict[int, tuple[Any, BaseException | None]] = {}
        for _ in calls:  # an actor that waits here for too long is killed by its manager
            i, result, error = self._results.get()
            results[i] = result, error
        for i, _ in calls:
            if (failed := results[i][1]) is not None:
                if not keeps or not isinstance(failed, Exception):
                    raise failed
                self._fail(i, failed)
        return [results[i][0] for i, _ in calls]

    def reset(
        self, which: Sequence[int], seeds: Sequence[int | None], obs: Columns, rows: Sequence[int]
    ) -> None:
        self.failures = []
        calls = [
            (i, partial(self.envs[i].reset, seed=seed))
            for i, seed in zip(which, seeds, strict=True)
        ]
        with SlowCall("reset"):
            begun = self._guard.call(self._begin_each, calls)
        self._check_spaces(which)
        for row, first in zip(rows, begun, strict=True):
            if first is not None:
                self.layout.write(obs, row, first[0], origin="reset()")

    def step(self, actions: NDArray[Any], obs: Columns, which: Sequence[int] | None = None) -> bool:
        self.failures = []
        chosen = range(len(self)) if which is None else which
        calls = [(i, partial(self.envs[i].step, a)) for i, a in zip(chosen, actions, strict=True)]
        results = self._guard.call(self._step_each, calls)
        if self.failures:
            return self._write_sound(results, obs, chosen)
        return self._write(results, obs)

    def _begin_each(self, calls: Sequence[Call]) -> list[Any]:
        """Reset side by side; once more in turn where that has shown that they give one array."""
        if not self._shares:
            begun = self._run(calls, keeps=True)
            if not share_memory([_arrays_of(first) for first in begun]):
                return begun
            self._shares = True
            self.failures = []
        return self._run_in_turn(calls)

    def _step_each(self, calls: Sequence[Call]) -> list[Any]:
        """Step side by side, or in turn where resets have shown that they give one array.

        Raises:
            SpaceLayoutError: their steps alone do: what was written over is not known.
        """
        if self._shares:
            return self._run_in_turn(calls)
        results = self._run(calls, keeps=True)
        if len(calls) > 1 and not self._was_stepped:
            self._was_stepped = True
            if share_memory([_arrays_of(result) for result in results]):
                why = (
                    "step() gives one array in all instances, which write over each other's: give "
                    "a copy, or set env.stepping=serial"
                )
                raise SpaceLayoutError("observation", self.description.observation_space, why)
        return results

    def _run_in_turn(self, calls: Sequence[Call]) -> list[Any]:
        """Call one after another, each in its thread, and copy what it gave."""
        return [_copied_result(self._run([call], keeps=True)[0]) for call in calls]

    def replace(self, i: int) -> None:
        assert self._make is not None, "it was made by it"
        with suppress(Exception):  # it is broken
            self._guard.call(self._run, [(i, self.envs[i].close)])
        env = self._make_one(self._guard, i, self._make)
        self._check_alike(i, env)
        self.envs[i] = env

    def close(self) -> None:
        """Close the environments, all of them, and end their threads.

        An error or Ctrl-C that is why they are closed gets a note of what is raised without it.

        Raises:
            BaseException: the first that one of them raised.
            TimeoutError: one does not come back from its step, or does not close.
        """
        self._guard.call(self._close)

    def _close(self) -> None:
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


def _note_thread(error: BaseException) -> None:
    """Tell the way out: signals, event loops and windows are of a process's main thread only."""
    error.add_note(
        "in a thread of its own (env.stepping=threads); where the environment wants a main thread, "
        "set env.stepping=processes"
    )


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
        makes_again: one that fails is made again, where it can be and is not broken.
    """

    def __init__(
        self,
        envs: EnvGroup | Sequence[Env],
        *,
        seed: int,
        rewards: RewardTransform | None = None,
        makes_again: bool = False,
    ):
        group = envs if isinstance(envs, EnvGroup) else SerialEnvs(envs)
        env = group.description
        super().__init__(env.observation_space, env.action_space, len(group), rewards)
        self.group = group
        root = np.random.SeedSequence(seed)
        words = root.generate_state(len(group))
        self._seeds: list[int | None] = [int(word >> 1) for word in words]  # some want 31 bits
        self._later_seeds = np.random.default_rng(root.spawn(1)[0])  # of those that are made again
        self._valid = np.ones(len(group), np.bool_)
        self._judge = FailureJudge(len(group), self._tell_failure)
        group.keeps_failures = makes_again and group.can_replace

    def reset(self) -> Columns:
        self._current = 0
        everywhere = range(len(self))
        self._begin(everywhere, self._seeds, self._buffers[0])
        self._seeds = [None] * len(self)
        self._returns.reset()
        return self._buffers[0]

    def _tell_failure(self, failure: EnvironmentFailure) -> None:
        if self.on_failure is not None:
            self.on_failure(failure)

    def _begin(self, which: Sequence[int], seeds: Sequence[int | None], obs: Columns) -> None:
        """Begin episodes in these environments; those that fail are made again."""
        self.group.reset(which, seeds, obs, which)
        while self.group.failures:
            self._replace(self.group.failures, obs)

    def _replace(self, failures: Sequence[tuple[int, Exception]], obs: Columns) -> None:
        """Make environments again, and begin episodes in them, which may fail once more.

        Raises:
            Exception: one is broken.
        """
        made = [i for i, _ in failures]
        self._judge.replace(self.group, failures)
        words = self._later_seeds.integers(2**31, size=len(made))
        self.group.reset(made, [int(word) for word in words], obs, made)

    def step(self, action: NDArray[Any]) -> Step:
        """Step every environment; an exception of one comes out as it is, with a note of which."""
        action = self._action_column(action)
        group = self.group
        next_obs = self._buffer(1)
        ended = group.step(self._actions.to_environment(action), next_obs)
        self._judge.steps += 1
        taken_over = group.interventions
        valid = self._valid
        if self.lost:
            self.lost = ()
        if group.failures:
            valid = self._replace_failed(next_obs)
        self._rewards.write(group.reward, self._reward)
        self._returns.add(group.reward, None if valid is self._valid else valid)
        if ended:
            self._reset_ended(next_obs, self._buffer(2))
        return self._outcome(
            action, taken_over, group.terminated, group.truncated, valid, begins=ended
        )

    def _replace_failed(self, next_obs: Columns) -> NDArray[np.bool_]:
        """Make the environments again that failed in a step; returns where it is a transition.

        Their new episodes begin with what is seen next.
        """
        failures = self.group.failures
        self.lost = [i for i, _ in failures]
        valid = self._valid.copy()
        valid[self.lost] = False
        while failures:
            self._replace(failures, next_obs)
            failures = self.group.failures
        self._returns.drop(~valid)
        return valid

    def _reset_ended(self, next_obs: Columns, init_obs: Columns) -> None:
        done = self.group.terminated | self.group.truncated
        self._returns.end(done)
        self._judge.on_ended(done)
        copy_columns(next_obs, init_obs)
        ended = np.flatnonzero(done).tolist()
        self._begin(ended, [None] * len(ended), init_obs)

    def attribute(self, name: str) -> Any:
        try:
            return self.group.attribute(name)
        except AttributeError:
            return None

    def close(self) -> None:
        self.group.close()
