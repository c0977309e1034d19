"""Environments whose loop somebody else runs: their steps are pushed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step
from vedette_rl.core.columns import copy_columns
from vedette_rl.envs.layout import Intervention, RewardTransform
from vedette_rl.envs.vector_env import VectorEnvironment
from vedette_rl.errors import SpaceLayoutError

_FLOAT32_MAX = float(np.finfo(np.float32).max)


_BOOL = np.dtype(np.bool_)


class PushedEnvs(VectorEnvironment):
    """E environments that another program steps: what comes of a step is pushed.

    ::

        envs.begin(obs)
        step = envs.push(action, reward, obs, terminated, truncated)
        envs.begin(first_obs, which)            # where new episodes begin; processed after that

    Args:
        observation, action: the spaces of one environment.
        count: E; None: one, whose observations, rewards and flags have no axis of environments.
        rewards: the conversion of rewards for transitions.
    """

    def __init__(
        self,
        observation: gym.Space[Any],
        action: gym.Space[Any],
        count: int | None,
        rewards: RewardTransform | None = None,
    ) -> None:
        super().__init__(observation, action, count or 1, rewards)
        self._shape = () if count is None else (count,)
        self._arrived = self._layout.empty(count or 1)
        leaves = self._layout.leaves
        self._mask_shapes = {leaf.name: (-1, *(1 for _ in leaf.shape)) for leaf in leaves}
        self.true_reward = np.zeros(count or 1, np.float64)
        """``(E,)``, what was pushed last, before it is scaled and clipped."""
        self._flags = np.zeros((2, count or 1), np.bool_)  # terminated, truncated
        self._valid = np.ones(count or 1, np.bool_)
        self._begun = np.zeros(count or 1, np.bool_)
        self.is_begun = False
        """Every environment has an observation to act on."""
        self.batched = count is not None
        self.never: Any = np.zeros(self._shape, np.bool_) if self._shape else False
        """Flags that are not set."""
        self.ended = False
        """An episode ended with what was pushed last."""
        self._none = np.zeros(count or 1, np.bool_)
        self.done = self._none
        """``(E,)``, where one did."""
        self._partly = np.zeros(count or 1, np.bool_)  # steps of the episode were left out

    def begin(self, obs: Any, which: NDArray[np.bool_] | None = None, *, cuts: bool = True) -> None:
        """Begin episodes with `obs`: everywhere, or where `which` ``(E,)`` is true.

        Args:
            cuts: an episode that has not ended may be among them.

        Raises:
            SpaceLayoutError: an observation has another shape than its space, or no finite value.
        """
        which = self._valid if which is None else which
        self._write(self._arrived, obs, which)
        self._check_finite(self._arrived, which)
        self._current = max(0, self._current)
        for name, column in self._buffers[self._current].items():
            where = which.reshape(self._mask_shapes[name])
            np.copyto(column, self._arrived[name], where=where)
        if not self.is_begun:
            self._begun |= which
            self.is_begun = bool(self._begun.all())
        if cuts:
            self._returns.drop(which)
            self._partly[which] = False

    def flags(self, which: Any) -> NDArray[np.bool_]:
        """``(E,)``, flags as `begin` takes them; None: all are set.

        Raises:
            ValueError: they are not one flag for each environment.
        """
        if which is None:
            return self._valid
        if np.asarray(which).dtype != np.bool_:
            raise ValueError(f"which={which!r}: True or False for each environment, not its number")
        flags = np.zeros(len(self), np.bool_)
        self._fill(flags, "which", which)
        return flags

    def begin_like(self, others: PushedEnvs) -> None:
        """Begin episodes everywhere with what others of the same spaces see."""
        self._current = max(0, self._current)
        copy_columns(others.reset(), self._buffers[self._current])
        self.is_begun = True

    def reset(self) -> Columns:
        return self._buffers[self._current]

    def action_to_environment(self, action: NDArray[Any]) -> Any:  # an array, or a number
        """The actions as the environments take them; of the only one without the axis."""
        actions = self._actions.to_environment(self._actions.to_column(action))
        return actions if self._shape else actions[0]

    def executed(self, action: Any) -> list[Intervention]:
        """The actions that were executed, as `push` takes them: one for each environment, or the
        only one's; None: the chosen ones were.

        Raises:
            ValueError: they are not one for each environment.
        """
        if action is None:
            return []
        if not self.batched:
            return [(0, action)]
        try:
            actions = [*action]
        except TypeError as error:  # a number
            raise ValueError(f"action={action!r}: give one for each environment") from error
        if len(actions) != len(self):
            raise ValueError(f"action={action!r}: {len(actions)} for {len(self)} environments")
        return [*enumerate(actions)]

    def push(
        self,
        action: NDArray[Any],
        reward: Any,
        obs: Any,
        terminated: Any,
        truncated: Any,
        taken_over: Sequence[Intervention] = (),
        left_out: NDArray[np.bool_] | None = None,
    ) -> Step:
        """The outcome of `action` ``(E, *shape)``.

        Args:
            taken_over: environments, and the actions of their own that were executed instead.
            left_out: ``(E,)``, environments of which this step is neither a transition nor of an
                episode that counts; None: of none.

        Raises:
            SpaceLayoutError: an observation has another shape than its space, or no finite value.
            ValueError: rewards or flags are not one for each environment, a reward is not finite,
                an executed action is none of the space, or a flag is neither true nor false.
        """
        action = self._action_column(action)
        next_obs = self._buffer(1)
        for row, executed in taken_over:
            of = f" of environment {row}" if self.batched else ""
            try:  # before anything is counted
                column = self._actions.from_environment(executed)
            except ValueError as error:
                raise ValueError(f"action={executed!r}{of}: {error}") from error
            is_stored = left_out is None or not left_out[row]
            if is_stored and (fault := self._fault_of_executed(action[row], column)):
                raise ValueError(f"action={executed!r}{of}: {fault}")
        self._write(next_obs, obs)
        self._check_finite(next_obs, None)
        self._fill(self.true_reward, "rewards", reward)
        if not np.vdot(self.true_reward, self.true_reward) <= _FLOAT32_MAX and (
            not np.abs(self.true_reward).max() <= _FLOAT32_MAX  # neither is NaN
        ):
            wrong = int(np.flatnonzero(~(np.abs(self.true_reward) <= _FLOAT32_MAX))[0])
            at = f"; it is that of environment {wrong}" if self.batched else ""
            raise ValueError(f"rewards={reward!r}: not finite, or not within float32{at}")
        self._fill_flags(self._flags[0], "terminated", terminated)
        self._fill_flags(self._flags[1], "truncated", truncated)
        self._rewards.write(self.true_reward, self._reward)
        valid = self._valid if left_out is None else ~left_out
        if left_out is not None:
            self._partly |= left_out
        self._returns.add(self.true_reward, None if left_out is None else valid)
        self.ended = bool(np.count_nonzero(self._flags))
        self.done = self._none
        if self.ended:
            self.done = self._flags[0] | self._flags[1]
            self._returns.end(self.done & ~self._partly)  # the rest of an episode is none
            self._returns.drop(self.done & self._partly)
            self._partly[self.done] = False
            copy_columns(next_obs, self._buffer(2))
        return self._outcome(
            action, taken_over, self._flags[0], self._flags[1], valid, begins=self.ended
        )

    def attribute(self, name: str) -> Any:
        return None

    def close(self) -> None:
        """Nothing is to be closed: they are another's."""

    def _write(self, columns: Columns, obs: Any, which: NDArray[np.bool_] | None = None) -> None:
        if self._shape:
            self._layout.write_all(columns, obs, which=which)
        else:
            self._layout.write(columns, 0, obs)

    def _fill(self, into: NDArray[Any], name: str, value: Any) -> None:
        array = np.asarray(value)
        if array.size == 1 and not self._shape and not isinstance(value, list | tuple):
            array = array.reshape(())
        if array.shape != self._shape:
            expected = f"of shape {self._shape}" if self._shape else "a single one"
            raise ValueError(f"{name} of shape {array.shape}, expected {expected}")
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name}={value!r}: not a number")
        into[:] = array

    def _check_finite(self, columns: Columns, which: NDArray[np.bool_] | None) -> None:
        found = self._layout.find_not_finite(columns, which)
        if found is None:
            return
        leaf, place = found
        element = place if self.batched else place[1:]
        at = f"{[*element]}" if element else ""
        value = columns[leaf.name][place]
        why = f"an observation's {leaf.name!r}{at} is {value}, which is not finite"
        raise SpaceLayoutError("observation", leaf.space, why, element)

    def _fill_flags(self, into: NDArray[Any], name: str, value: Any) -> None:
        if type(value) is not bool and getattr(value, "dtype", None) is not _BOOL:
            flags = np.asarray(value)
            if flags.dtype.kind not in "biuf" or not ((flags == 0) | (flags == 1)).all():
                raise ValueError(f"{name}={value!r}: a flag is True or False, or 1 or 0")
        self._fill(into, name, value)
