"""The interfaces of networks that act, in numpy or in torch, with and without memory. No torch.

Shapes: E environments, H numbers of a memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo


class SyncedNetwork(Protocol):
    """A network that only acts, on the arrays of the last model it was given."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of a model's arrays, all float32, by name."""
        ...

    def sync_model(self, model: ModelInfo) -> None:
        """Use these weights.

        Raises:
            ModelMismatchError: they are those of another network; the old ones stay.
        """
        ...


class ActingNetwork(SyncedNetwork, Protocol):
    """A network without memory that acts."""

    def __call__(self, obs: Columns, *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output for columns ``obs...`` and further inputs of the network.

        Raises:
            ModelMismatchError: it has no model yet.
        """
        ...


class RecurrentActingNetwork(SyncedNetwork, Protocol):
    """A network with a recurrent core that acts: its output is made of its memory alone."""

    @property
    def memory_size(self) -> int:
        """H."""
        ...

    def remember(self, obs: Columns, memory: NDArray[np.float32]) -> NDArray[np.float32]:
        """The memory ``(E, H)`` after these observations, of the one before them.

        Raises:
            ModelMismatchError: it has no model yet.
        """
        ...

    def output(self, memory: NDArray[np.float32], *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output for a memory that `remember` gave, and further inputs."""
        ...


class BoundNetwork:
    """An `ActingNetwork` of a recurrent one and the memory before one observation.

    ::

        bound = BoundNetwork(network)
        bound.bind(memory)
        output = bound(obs)             # as often as an action needs it: the core is computed once
        memory = bound.remember(obs)

    Attributes:
        memory: ``(E, H)``, before the observation, and after it once that was computed.
    """

    def __init__(self, network: RecurrentActingNetwork) -> None:
        self._network = network
        self.shapes = network.shapes
        self.memory = np.zeros((0, network.memory_size), np.float32)
        self._remembers = False

    def sync_model(self, model: ModelInfo) -> None:
        """Use these weights; the memory stays."""
        self._network.sync_model(model)

    def bind(self, memory: NDArray[np.float32]) -> None:
        """Take the memory before the next observation, which the next calls are of."""
        self.memory = memory
        self._remembers = False

    def __call__(self, obs: Columns, *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output; see `ActingNetwork`."""
        return self._network.output(self.remember(obs), *inputs)

    def remember(self, obs: Columns) -> NDArray[np.float32]:
        """The memory ``(E, H)`` after the observation."""
        if not self._remembers:
            self.memory = self._network.remember(obs, self.memory)
            self._remembers = True
        return self.memory
