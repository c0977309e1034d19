"""The interfaces of actors and evaluators: policies, step processors, results of evaluations.

The actor's loop, in the order of its calls::

    policy.sync_model(model_info)                      # polled for a newer one at every step
    obs, begins = envs.reset(), all
    while not stopped:
        action = policy.act(obs, explore=True, begins=begins)
        step = envs.step(action)                       # Step: observations, actions, rewards
        if implements(policy, ColumnPolicy):
            step.extra = policy.acted_columns()
        transitions = processor.process(step)          # 0 or more rows, n-step if it makes them so
        push(transitions)
        obs, begins = step.init_obs, step.begins
    push(processor.flush())
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a vector of E environments. Arrays are valid until the next step, `init_obs`
    until the one after it, whose `obs` it is.

    Args:
        obs: observations that the policy acted on, columns ``obs...`` of ``(E, *shape)``.
        action: the executed actions ``(E, *shape)``.
        reward: ``(E,)`` float32.
        next_obs: the true successor: the final observation where an episode ended, never the
            first of the next one. Columns named ``obs...``.
        terminated: ``(E,)`` bool, the environment ended: no value beyond.
        truncated: ``(E,)`` bool, it was stopped from outside: the value beyond still counts.
        init_obs: the observation that the next action is chosen on: `next_obs`, or the first one of
            the new episode where one ended.
        valid: ``(E,)`` bool; False where a row is no transition (the reset step of Gymnasium's
            NEXT_STEP autoreset).
        extra: further columns of the transitions that begin here ``(E, *shape)``: those that the
            agent declares, `INTERVENED` and `SEQUENCE_KEYS`.
    """

    obs: Columns
    action: NDArray[Any]
    reward: NDArray[Any]
    next_obs: Columns
    terminated: NDArray[Any]
    truncated: NDArray[Any]
    init_obs: Columns
    valid: NDArray[Any]
    extra: Columns = field(default_factory=dict)

    @property
    def begins(self) -> NDArray[np.bool_]:
        """``(E,)``: where an episode begins with `init_obs`."""
        begins: NDArray[np.bool_] = self.terminated | self.truncated | ~self.valid
        return begins


class Policy(Protocol):
    """Acts on observations. It holds only what acting needs."""

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on. May keep the arrays: they are not written again."""
        ...

    def act(
        self, obs: Columns, *, explore: bool, begins: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Actions ``(E, *shape)`` for columns ``obs...`` of ``(E, *shape)``.

        Discrete actions count from 0, whatever the environment's `start` is.

        Args:
            explore: True for actors that collect, False for evaluation (greedy, deterministic).
            begins: ``(E,)``, where an episode begins with this observation: a policy with memory
                forgets there. Row i is the same environment from call to call; an evaluation may
                leave out the last rows once they have ended. None: unknown. A policy without
                memory may leave this argument out.
        """
        ...


class LoadedPolicy(Policy, Protocol):
    """A `Policy` that was loaded, which a loop of one's own plays::

        policy.reset()
        while not over:
            action = policy.act({"obs": obs[None]}, explore=False)[0]
            ...

    Its actions are the environment's own.
    """

    def reset(self) -> None:
        """Have all episodes begin with the next observations, as ``begins`` does in `act`: a policy
        with memory forgets what it saw. One without it changes nothing."""
        ...


ActFunction = Callable[..., NDArray[Any]]
"""`Policy.act`."""


def act_of(policy: Policy) -> ActFunction:
    """Return `policy.act`, or for one that does not take `begins` a function that drops it."""
    parameters = inspect.signature(policy.act).parameters.values()
    if any(p.name == "begins" or p.kind is p.VAR_KEYWORD for p in parameters):
        return policy.act

    def act(obs: Columns, *, explore: bool, begins: NDArray[np.bool_]) -> NDArray[Any]:
        return policy.act(obs, explore=explore)

    return act


class ColumnPolicy(Protocol):
    """A `Policy` that fills columns which its agent declares (`AgentKind.columns`)."""

    def acted_columns(self) -> Columns:
        """Columns ``(E, *shape)`` of what `act` returned last: log-probabilities, the recurrent
        state that it acted on. Valid until the next `act`."""
        ...


class RememberingPolicy(Protocol):
    """A `Policy` whose actions depend on what it saw before."""

    def take_back(self) -> None:
        """Forget the last call of `act`: its actions were not executed, and the next call chooses
        again."""
        ...


class TdErrorPolicy(Protocol):
    """A `Policy` that also computes TD errors, for initial priorities by actors (Ape-X)."""

    def td_errors(self, transitions: Columns) -> NDArray[Any]:
        """Absolute TD errors ``(B,)`` float32 of transitions, by the model that it acts on.

        Args:
            transitions: columns as `StepProcessor` makes them, ``(B, *shape)`` each.
        """
        ...


class StepProcessor(Protocol):
    """Turns steps into transitions: columns ``obs..., action, reward, next_obs..., terminated,
    truncated, n_steps``, those of `Step.extra`, and its own.

    What it has besides, if it has it, is read from its class by `vedette_rl.steps`:

    * ``columns(spaces) -> Sequence[RowColumn]``, a static method: the columns that it adds;
    * ``rows_per_step``: transitions made of a step, on average (1); the limiter counts by it;

    and from the object:

    * ``prepare(envs, seed)`` is called once before the first step;
    * ``span``: steps from the oldest that it holds, or gave a row of last, to the newest (n).
    """

    def process(self, step: Step) -> Columns:
        """The transitions that this step completes: 0 or more rows, owned by the caller."""
        ...

    def flush(self) -> Columns:
        """Return unfinished transitions, of fewer steps; the processor is empty afterwards.

        Where an environment failed, this comes after the step in which it did, and before that is
        processed: of the last processed step's arrays, `Step.init_obs` alone is still valid."""
        ...


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The greedy episodes of one model. Returns are undiscounted sums of rewards.

    Args:
        seed: the seed of the first episode; the others count on.
        max_episode_steps: episodes were cut there; None: not known.
        cut: episodes that were.
        selected: the model is the best of its run's evaluations; None: not known.
        fresh_seeds: it was not selected by any of these episodes; None: not known.
    """

    version: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    seed: int
    max_episode_steps: int | None = None
    cut: int = 0
    selected: bool | None = None
    fresh_seeds: bool | None = None

    @property
    def episodes(self) -> int:
        return len(self.returns)

    @property
    def return_mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def return_std(self) -> float:
        """Deviation of the population, as numpy's: divided by the number of episodes."""
        return float(np.std(self.returns))

    @property
    def length_mean(self) -> float:
        return float(np.mean(self.lengths))
