"""The inner loop of an actor: newest model, act, step, process."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Protocol

import numpy as np

from vedette_rl.core import ColumnPolicy, Columns, ModelInfo, Policy, StepProcessor, act_of
from vedette_rl.envs.vector_env import VectorEnvironment


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

    Args:
        envs: the environments.
        policy: acts; it needs no model before the first `sync`.
        processor: makes transitions of steps.
        models: where models come from.
        n_step: steps that a transition spans at most, where `processor` has no ``span``.
    """

    def __init__(
        self,
        envs: VectorEnvironment,
        policy: Policy,
        processor: StepProcessor,
        models: ModelSource,
        n_step: int,
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
        self._n_step = n_step
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

    def step(self) -> Columns:
        """Step every environment once; the transitions that this completes, the caller's own.

        Raises:
            ModelMismatchError: as `sync`.
        """
        self.sync()
        action = self._act(self._obs, explore=True, begins=self._begins)
        step = self._envs.step(action)
        if self._columns:
            step = replace(step, extra={**step.extra, **self._columns()})
        self.env_steps += int(np.count_nonzero(step.valid))
        self._acted_on.append(self.acting_on)
        transitions = self._processor.process(step)
        span = getattr(self._processor, "span", None) or self._n_step
        while len(self._acted_on) > span:
            self._acted_on.popleft()
        self._obs, self._begins = step.init_obs, step.begins
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
