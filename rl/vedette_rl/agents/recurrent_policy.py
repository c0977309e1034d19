"""Acting with a memory of what was seen since each episode began. No torch.

Shapes: E environments, H numbers of a memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.network_policy import NetworkPolicy
from vedette_rl.core.acting import ColumnPolicy
from vedette_rl.core.columns import Columns, RowColumn
from vedette_rl.core.learning import ModelInfo
from vedette_rl.core.protocols import implements
from vedette_rl.networks.acting_network import BoundNetwork

MEMORY = "memory"
"""The column of what an actor remembered before a row's observation."""


def memory_column(size: int, dtype: str = "float32") -> RowColumn:
    """The column of a memory of `size` numbers, of which a drawn sequence has the first row's."""
    return RowColumn(MEMORY, dtype, (size,), first=True)


class RecurrentPolicy:
    """A `ColumnPolicy` on a policy that has no memory itself, and acts by a bound network.

    An environment's memory is 0 where an episode begins, where there was no such row in the call
    before (an evaluation leaves out the last ones once they have ended), and at the first call.
    Where `begins` is None an episode goes on. A newer model goes on with the memory of the older.

    Args:
        policy: acts by `network`.
        network: holds the memory before an observation.
    """

    def __init__(self, policy: NetworkPolicy, network: BoundNetwork) -> None:
        self._policy = policy
        self._network = network
        self._after = network.memory
        self._before = self._after
        self._previous = self._after

    @property
    def version(self) -> int:
        """The version of the model that it acts on."""
        return self._policy.version

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on; see `NetworkPolicy.sync_model`."""
        self._policy.sync_model(model)

    @property
    def memory(self) -> NDArray[np.float32]:
        """What is remembered ``(E, H)`` after the observations that `act` acted on last."""
        return self._after

    def recall(self, memory_EH: NDArray[np.float32]) -> None:
        """Go on with these memories in the place of its own."""
        self._after = memory_EH

    @property
    def inner(self) -> NetworkPolicy:
        """The policy that acts, whose network remembers what `act` acted on last."""
        return self._policy

    def act(
        self, obs: Columns, *, explore: bool, begins: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Actions ``(E, *shape)``; see `vedette_rl.core.Policy`."""
        rows = len(next(iter(obs.values())))
        before = np.zeros((rows, self._after.shape[1]), np.float32)
        known = min(rows, len(self._after))
        before[:known] = self._after[:known]
        if begins is not None:
            before[begins] = 0.0
        self._previous = self._after
        self._network.bind(before)
        action = self._policy.act(obs, explore=explore, begins=begins)
        self._after = self._network.remember(obs)
        self._before = before
        return action

    def take_back(self) -> None:
        """Forget the last call of `act`; see `vedette_rl.core.acting.RememberingPolicy`."""
        self._after = self._previous

    def acted_columns(self) -> Columns:
        """What was remembered before the observations that `act` acted on last, beside the columns
        of the policy itself."""
        policy = self._policy
        acted = policy.acted_columns() if implements(policy, ColumnPolicy) else {}
        return {**acted, MEMORY: self._before}
