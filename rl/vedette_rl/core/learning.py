"""The interface of agents, which the trainer drives, and the model info that goes to actors.

The trainer's loop, in the order of its calls::

    agent = agent_kind.build_agent(config, spaces, device=device, seed=seed)
    agent.set_state(checkpoint)                       # only when a run resumes
    publish(agent.model_info())
    while not stopped:
        sample = replay.sample(batch_size)
        result = agent.opt(sample.batch, sample.weights, record=due(record_agent_info_interval))
        replay.update_priority(sample.indices, result.td_errors)
        if due(sync_interval): publish(agent.model_info())
        if due(save_interval): save(agent.get_state())
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.typing import NDArray

if TYPE_CHECKING:  # the contracts are read by processes that never load torch
    import torch

State = dict[str, Any]
"""A state to save, a dict of dicts: leaves are tensors, arrays, numbers, strings, bools or None."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The arrays that an actor needs to act, and no more: upstream's ``(n_opts, ModelInfo)``.

    Args:
        version: optimization steps behind the arrays.
        arrays: named arrays, contiguous, owned by the receiver: never a view of live weights.
    """

    version: int
    arrays: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class OptResult:
    """The result of one optimization step.

    Args:
        td_errors: absolute TD error of each sample ``(B,)`` for prioritized replay; None where an
            agent has none.
        record: scalars by name (``loss``, ``q_mean``, ...); empty unless the step was asked to
            record, because reading a scalar off a GPU waits for it.
    """

    td_errors: torch.Tensor | None = None
    record: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class SyncModel(Protocol):
    """Something whose acting part can be sent to actors."""

    def model_info(self) -> ModelInfo:
        """A copy of what actors need, with its version. The names and shapes never change."""
        ...


@runtime_checkable
class Agent(SyncModel, Protocol):
    """Learns from batches. The module's docstring shows the loop that calls it."""

    @property
    def opt_steps(self) -> int:
        """Optimization steps done, over all epochs of the run."""
        ...

    def opt(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
        *,
        record: bool = False,
    ) -> OptResult:
        """One optimization step.

        Args:
            batch: a column each ``(B, *shape)`` on the agent's device: ``obs``, ``action``,
                ``reward``, ``next_obs``, ``terminated``, ``truncated``, ``n_steps``. Owned by the
                caller and overwritten after the call.
            weights: importance-sampling weights ``(B,)``; None means all 1.
            record: also fill `OptResult.record`.
        """
        ...

    def get_state(self) -> State:
        """All that resume needs: weights, targets, optimizer, counters, random states. Copies."""
        ...

    def set_state(self, state: State) -> None:
        """Continue from `state`: the next steps are the same as if nothing had happened."""
        ...
