"""Acting with a network in torch: on images, and with networks of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.networks.numpy_nets import check_arrays


class ActingNetwork:
    """A network on the CPU that only acts, on the arrays of the last model it was given.

    It is in evaluation mode, exploring or not: noise that helps learning (dropout) is none of the
    policy's.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network.requires_grad_(False).eval()
        self._parameters = dict(network.named_parameters())
        self._shapes = {name: tuple(p.shape) for name, p in self._parameters.items()}
        self._synced = False

    def sync_model(self, model: ModelInfo) -> None:
        """Take these weights.

        Raises:
            ModelMismatchError: they are those of another network; the old ones stay.
        """
        check_arrays(self._shapes, model.arrays)
        for name, parameter in self._parameters.items():
            parameter.copy_(torch.tensor(model.arrays[name]))
        self._synced = True

    def __call__(self, obs: Columns, *args: NDArray[Any]) -> NDArray[np.float32]:
        """The network's output for columns ``obs...``, and further arrays it takes.

        Raises:
            ModelMismatchError: it has no model yet.
        """
        if not self._synced:
            check_arrays(self._shapes, {})
        with torch.inference_mode():
            columns = {name: torch.as_tensor(column) for name, column in obs.items()}
            output = self._network(columns, *(torch.as_tensor(arg) for arg in args))
        array: NDArray[np.float32] = output.numpy()
        return array
