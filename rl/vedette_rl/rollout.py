"""The inner loop of an actor: newest model, act, step, process."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vedette_rl.core import (
    ColumnPolicy,
    Columns,
    ModelInfo,
    Policy,
    RememberingPolicy,
    Step,
    StepProcessor,
    act_of,
)
from vedette_rl.core.columns import check_rows
from vedette_rl.core.learning import describe_returned
from vedette_rl.core.protocols import implements
from vedette_rl.core.step_keys import StepKeys
from vedette_rl.envs.spaces import action_field
from vedette_rl.envs.vector_env import VectorEnvironment
from vedette_rl.errors import CustomPartError
from vedette_rl.import_by_name import is_import_name


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
            step = loop.play()
            if envs.lost:                        # what follows does not follow what was before
                push(loop.flush(), loop.made_by)
            push(loop.process(step), loop.made_by)      # 0 or more transitions
        push(loop.flush(), loop.made_by)

    Those who step the environments themselves take `play` apart::

        step = loop.on_step(envs.step(loop.act()))

    Args:
        envs: the environments.
        policy: acts; it needs no model before the first `sync`.
        processor: makes transitions of steps.
        models: the source of models.
        n_step: steps that a transition spans at most, where `processor` has no ``span``.
        agent: the agent's name; the first actions of a custom agent are checked.
        explore_from: the version from which exploration counts: the policy is told versions from
            there, and 0 before.
        keys: counts the steps, where rows say which of them follow one another; None: they do not.
        run_length: steps that are played on one model; 0: the newest is taken at each step.
    """

    def __init__(
        self,
        envs: VectorEnvironment,
        policy: Policy,
        processor: StepProcessor,
        models: ModelSource,
        n_step: int,
        agent: str = "",
        explore_from: int = 0,
        keys: StepKeys | None = None,
        run_length: int = 0,
    ) -> None:
        self.envs = envs
        self._run_length = run_length
        self._steps_of_run = 0
        self._keys = keys
        self._explore_from = explore_from
        self._policy = policy
        self._processor = processor
        self._columns = policy.acted_columns if implements(policy, ColumnPolicy) else None
        self._chooser = Chooser(policy)
        self._begins = np.ones(len(envs), np.bool_)
        self._models = models
        self.env_steps = 0
        """Steps played, over all environments."""
        self.acting_on = (0, -1)
        """(epoch, version) of the model that it acts on; version -1 before the first."""
        # An n-step transition began n - 1 steps ago, perhaps on an older model.
        self._acted_on: deque[tuple[int, int]] = deque()
        self._n_step = n_step
        self._unchecked = agent if is_import_name(agent) else ""
        self._obs: Columns = {}

    @property
    def made_by(self) -> tuple[int, int]:
        """(epoch, version) of the oldest model behind the transitions that came last."""
        return min(self._acted_on, default=self.acting_on)

    @property
    def is_between_runs(self) -> bool:
        """True where the next step begins a run; always where steps are not played in runs."""
        return self._steps_of_run == 0

    def sync(self) -> bool:
        """Act on the newest model from now on; True if there was a new one.

        Raises:
            ModelMismatchError: it is the model of another network.
        """
        if not self._models.has_new or (model := self._models.read()) is None:
            return False
        info = model.info()
        counted = max(0, info.version - self._explore_from)
        self._policy.sync_model(replace(info, version=counted))
        self.acting_on = model.epoch, info.version
        return True

    def begin(self) -> None:
        """Begin new episodes everywhere."""
        self._obs = self.envs.reset()
        self._begins = np.ones(len(self.envs), np.bool_)

    def mark_begun(self, which: NDArray[np.bool_]) -> None:
        """Episodes of these environments ``(E,)`` begin with what is seen now."""
        self._begins = self._begins | which

    def play(self) -> Step:
        """Step every environment once; returns what is to be processed.

        Raises:
            ModelMismatchError: as `sync`.
        """
        return self.on_step(self.envs.step(self.act()))

    def act(self) -> NDArray[Any]:
        """Choose actions ``(E, *shape)`` by the newest model.

        Raises:
            ModelMismatchError: as `sync`.
            CustomPartError: the first ones are not in the action space.
        """
        if self.is_between_runs:
            self.sync()
        action = self._chooser.choose(self._obs, explore=True, begins=self._begins)
        if self._unchecked:
            check_actions(self._unchecked, action, self.envs.spaces.action, len(self.envs))
            self._unchecked = ""
        return action

    def on_step(self, step: Step) -> Step:
        """Go on from the outcome of the last actions; returns what is to be processed.

        Raises:
            RowColumnError: the policy has columns that are not of one row for each environment.
        """
        self._chooser.on_executed()
        if self._columns:
            acted = self._columns()
            check_rows(acted, len(self.envs), "environments")
            step = replace(step, extra={**step.extra, **acted})
        if self._keys:
            counted = self._keys.of_step(self._begins, step.valid, self.envs.lost)
            step = replace(step, extra={**step.extra, **counted})
        self.env_steps += int(np.count_nonzero(step.valid))
        if self._run_length:
            self._steps_of_run = (self._steps_of_run + 1) % self._run_length
        self._acted_on.append(self.acting_on)
        self._obs = step.init_obs
        self._begins = step.begins
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
        return self.envs.pop_finished_episodes()

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()


class Chooser:
    """Chooses actions by a policy, and again where they were not executed.

    Args:
        policy: acts; what it remembered of actions that were not executed is taken back.
    """

    def __init__(self, policy: Policy) -> None:
        self._act = act_of(policy)
        self._take_back = policy.take_back if implements(policy, RememberingPolicy) else None
        self._waits = False

    def choose(self, obs: Columns, *, explore: bool, begins: NDArray[np.bool_]) -> NDArray[Any]:
        """Actions ``(E, *shape)``; see `vedette_rl.core.Policy.act`."""
        if self._waits and self._take_back is not None:
            self._take_back()
        action = self._act(obs, explore=explore, begins=begins)
        self._waits = True
        return action

    def on_executed(self) -> None:
        """Environments were stepped by the actions that were chosen last."""
        self._waits = False


def check_actions(name: str, actions: Any, space: gym.Space[Any], envs: int) -> None:
    """Check what the policy of agent `name` returned for `envs` environments.

    Args:
        space: the space of one action, as agents see it: discrete ones count from 0.

    Raises:
        CustomPartError: they are not one action of the space for each; a Box's bounds are not
            looked at, as many environments clip.
    """
    _, dtype, shape = action_field(space)
    try:
        array = np.asarray(actions)
    except (TypeError, ValueError):
        array = np.empty(0, object)
    sound = array.shape == (envs, *shape) and np.can_cast(array.dtype, dtype, "same_kind")
    if sound and isinstance(space, spaces.Box):
        sound = bool(np.isfinite(array).all())
    elif sound:
        sound = all(space.contains(one.astype(space.dtype)) for one in array)
    if not sound:
        expected = f"an action of {space} for each environment, {dtype}{[envs, *shape]}"
        raise CustomPartError("agent.name", name, "act", describe_returned(actions), expected)
