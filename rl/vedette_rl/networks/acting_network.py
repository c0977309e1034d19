"""The interface of a network that acts, in numpy or in torch. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo


class ActingNetwork(Protocol):
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

    def __call__(self, obs: Columns, *inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The output for columns ``obs...`` and further inputs of the network.

        Raises:
            ModelMismatchError: it has no model yet.
        """
        ...
