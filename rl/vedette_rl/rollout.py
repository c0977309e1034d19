"""The inner loop of an actor: newest model, act, step, process; and environments of others."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vedette_rl.core import ColumnPolicy, Columns, ModelInfo, Policy, Step, StepProcessor, act_of
from vedette_rl.core.columns import check_rows, copy_columns
from vedette_rl.core.learning import describe_returned
from vedette_rl.envs.layout import Intervention, RewardTransform
from vedette_rl.envs.spaces import ElementBounds, action_field
from vedette_rl.envs.vector_env import VectorEnvironment
from vedette_rl.errors import OwnPartError, SpaceLayoutError
from vedette_rl.import_by_name import is_import_name

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_BOOL = np.dtype(np.bool_)


class ReceivedModel(Protocol):
    """A model that was received and is not unpacked yet."""

    @property
    def epoch(self) -> int:
        """The learner's start that made it."""
        ...

    def info(self) -> ModelInfo:
        """The model info for a policy."""
        ...


class ModelSource(Protocol):
    """A source of models: only the newest is kept, and polling is cheap."""

    @property
    def has_new(self) -> bool:
        """True if there is a model that `read` has not returned yet."""
        ...

    def read(self) -> ReceivedModel | None:
        """The newest model; None before the first."""
        ...


class RolloutLoop:
    """Plays a vector of environments on the newest model.

    ::

        loop = RolloutLoop(envs, policy, processor, models, n_step)
        while not loop.sync(): ...               # until there is a model to act on
        loop.begin()
        while not stopped:
            push(loop.step(), loop.made_by)      # 0 or more transitions
        push(loop.flush(), loop.made_by)

    A step has three parts, for those who step the environments themselves::

        step = envs.step(loop.act())
        push(loop.process(loop.take(step)), loop.made_by)

    Args:
        envs: the environments.
        policy: acts; it needs no model before the first `sync`.
        processor: makes transitions of steps.
        models: where models come from.
        n_step: steps that a transition spans at most, where `processor` has no ``span``.
        agent: its name; the first actions of one of the user's own are checked.
    """

    def __init__(
        self,
        envs: VectorEnvironment,
        policy: Policy,
        processor: StepProcessor,
        models: ModelSource,
        n_step: int,
        agent: str = "",
    ) -> None:
        self._envs, self._policy, self._processor = envs, policy, processor
        self._act = act_of(policy)
        self._columns = policy.acted_columns if isinstance(policy, ColumnPolicy) else None
        self._begins = np.ones(len(envs), np.bool_)
        self._models = models
        self.env_steps = 0
        """Steps played, over all environments."""
        self.acting_on = (0, -1)
        """(epoch, version) of the model that it acts on; version -1 before the first."""
        # An n-step transition began n - 1 steps ago, perhaps on an older model.
        self._acted_on: deque[tuple[int, int]] = deque()
        self._n_step, self._unchecked = n_step, agent if is_import_name(agent) else ""
        self._obs: Columns = {}

    @property
    def made_by(self) -> tuple[int, int]:
        """(epoch, version) of the oldest model behind the transitions that came last."""
        return min(self._acted_on, default=self.acting_on)

    def sync(self) -> bool:
        """Act on the newest model from now on; True if there was a new one.

        Raises:
            ModelMismatchError: it is the model of another network.
        """
        if not self._models.has_new or (model := self._models.read()) is None:
            return False
        info = model.info()
        self._policy.sync_model(info)
        self.acting_on = model.epoch, info.version
        return True

    def begin(self) -> None:
        """Begin new episodes everywhere."""
        self._obs = self._envs.reset()
        self._begins = np.ones(len(self._envs), np.bool_)

    def mark_begun(self, which: NDArray[np.bool_]) -> None:
        """Episodes of these environments ``(E,)`` begin with what is seen now."""
        self._begins = self._begins | which

    def step(self) -> Columns:
        """Step every environment once; the transitions that this completes, the caller's own.

        Raises:
            ModelMismatchError: as `sync`.
        """
        return self.process(self.take(self._envs.step(self.act())))

    def act(self) -> NDArray[Any]:
        """Choose actions ``(E, *shape)`` by the newest model.

        Raises:
            ModelMismatchError: as `sync`.
            OwnPartError: the first ones are none of the action space.
        """
        self.sync()
        action = self._act(self._obs, explore=True, begins=self._begins)
        if self._unchecked:
            check_actions(self._unchecked, action, self._envs.spaces.action, len(self._envs))
            self._unchecked = ""
        return action

    def take(self, step: Step) -> Step:
        """Go on from the outcome of the last actions; returns what is to be processed.

        Raises:
            RowColumnError: the policy has columns that are not of one row for each environment.
        """
        if self._columns:
            acted = self._columns()
            check_rows(acted, len(self._envs), "environments")
            step = replace(step, extra={**step.extra, **acted})
        self.env_steps += int(np.count_nonzero(step.valid))
        self._acted_on.append(self.acting_on)
        self._obs, self._begins = step.init_obs, step.begins
        return step

    def process(self, step: Step) -> Columns:
        """Return the transitions that a step completes, before the next one is taken."""
        transitions = self._processor.process(step)
        span = getattr(self._processor, "span", None) or self._n_step
        while len(self._acted_on) > span:
            self._acted_on.popleft()
        return transitions

    def flush(self) -> Columns:
        """Return unfinished transitions, of fewer steps."""
        return self._processor.flush()

    def pop_finished_episodes(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call."""
        return self._envs.pop_finished_episodes()

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()


class PushedEnvs(VectorEnvironment):
    """E environments that another program steps: what comes of a step is pushed.

    ::

        envs.begin(obs)
        step = envs.push(action, reward, obs, terminated, truncated)
        envs.begin(first_obs, which)            # where new episodes begin; processed after that

    Args:
        observation, action: the spaces of one environment.
        count: E; None: one, whose observations, rewards and flags have no axis of environments.
        rewards: what rewards become in transitions.
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
        self._bounds = ElementBounds(self.spaces)
        self._arrived = self._layout.empty(count or 1)
        leaves = self._layout.leaves
        self._float_leaves = [leaf for leaf in leaves if leaf.dtype.kind == "f"]
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
        self._write(self._arrived, obs)
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
        own = self._actions.to_environment(self._actions.to_column(action))
        return own if self._shape else own[0]

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
            ValueError: rewards or flags are not one for each environment, a reward or executed
                action is not finite or far outside its space, or a flag is neither true nor false.
        """
        action, next_obs = self._action_column(action), self._buffer(1)
        for _, own in taken_over:
            if not np.isfinite(np.asarray(own, np.float64)).all():
                raise ValueError(f"action={own!r}: it is not finite")
            column = self._actions.from_environment(own)  # its shape: before anything is counted
            if fault := self._bounds.fault({"action": column}):
                raise ValueError(f"action={own!r}: {fault}")
        self._write(next_obs, obs)
        self._check_finite(next_obs, None)
        self._fill(self.true_reward, "rewards", reward)
        if not np.vdot(self.true_reward, self.true_reward) <= _FLOAT32_MAX and (
            not np.abs(self.true_reward).max() <= _FLOAT32_MAX  # neither is NaN
        ):
            raise ValueError(f"rewards={reward!r}: not finite, or not within float32")
        self._fill_flags(self._flags[0], "terminated", terminated)
        self._fill_flags(self._flags[1], "truncated", truncated)
        self._rewards.write(self.true_reward, self._reward)
        valid = self._valid if left_out is None else ~left_out
        if left_out is not None:
            self._partly |= left_out
        self._returns.add(self.true_reward, None if left_out is None else valid)
        self.ended, self.done = bool(np.count_nonzero(self._flags)), self._none
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

    def _write(self, columns: Columns, obs: Any) -> None:
        if self._shape:
            self._layout.write_all(columns, obs)
        else:
            self._layout.write(columns, 0, obs)

    def _fill(self, into: NDArray[Any], name: str, value: Any) -> None:
        found = np.asarray(value)
        if found.shape != self._shape:
            expected = f"of shape {self._shape}" if self._shape else "a single one"
            raise ValueError(f"{name} of shape {found.shape}, expected {expected}")
        if found.dtype.kind not in "biuf":
            raise ValueError(f"{name}={value!r}: not a number")
        into[:] = found

    def _check_finite(self, columns: Columns, which: NDArray[np.bool_] | None) -> None:
        for leaf in self._float_leaves:
            column = columns[leaf.name]
            if column.itemsize > 2 and math.isfinite(np.vdot(column, column)):
                continue  # the cheapest way: one sum
            column = column if which is None else column[which]
            if not np.isfinite(column).all():
                why = f"an observation's {leaf.name!r} is not finite"
                raise SpaceLayoutError("observation", leaf.space, why)

    def _fill_flags(self, into: NDArray[Any], name: str, value: Any) -> None:
        if type(value) is not bool and getattr(value, "dtype", None) is not _BOOL:
            found = np.asarray(value)
            if found.dtype.kind not in "biuf" or not ((found == 0) | (found == 1)).all():
                raise ValueError(f"{name}={value!r}: a flag is True or False, or 1 or 0")
        self._fill(into, name, value)


def check_actions(name: str, actions: Any, space: gym.Space[Any], envs: int) -> None:
    """Check what the policy of agent `name` returned for `envs` environments.

    Args:
        space: of one action, as agents see it: discrete ones count from 0.

    Raises:
        OwnPartError: they are not one action of the space for each; a Box's bounds are not looked
            at, as many environments clip.
    """
    _, dtype, shape = action_field(space)
    try:
        found = np.asarray(actions)
    except (TypeError, ValueError):
        found = np.empty(0, object)
    sound = found.shape == (envs, *shape) and np.can_cast(found.dtype, dtype, "same_kind")
    if sound and isinstance(space, spaces.Box):
        sound = bool(np.isfinite(found).all())
    elif sound:
        sound = all(space.contains(one.astype(space.dtype)) for one in found)
    if not sound:
        expected = f"an action of {space} for each environment, {dtype}{[envs, *shape]}"
        raise OwnPartError("agent.name", name, "act", describe_returned(actions), expected)
