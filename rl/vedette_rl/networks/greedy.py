"""Networks that act greedily, whole in torch: what an exporter traces."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import observation_columns
from vedette_rl.networks.model_arrays import check_arrays


class GreedyNetwork(nn.Module):
    """From the observation's columns, in their order, to the outputs named.

    An agent's own class fills in `forward`.

    Args:
        network: takes the columns by name; its weights are the model's.
        model: gives them.
        observation: the space of observations.

    Raises:
        ModelMismatchError: the model is another network's.
    """

    outputs: tuple[str, ...] = ("action",)

    def __init__(
        self, network: nn.Module, model: ModelInfo, observation: Any
    ) -> None:  # a gymnasium space
        super().__init__()
        parameters = dict(network.named_parameters())
        check_arrays({name: tuple(p.shape) for name, p in parameters.items()}, model.arrays)
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(torch.tensor(model.arrays[name]))
        self.network = network.requires_grad_(False).eval()
        self.leaves = observation_columns(observation)

    def output(self, columns: tuple[torch.Tensor, ...], *more: torch.Tensor) -> torch.Tensor:
        """The network's output for columns in their order."""
        names = [leaf.name for leaf in self.leaves]
        found: torch.Tensor = self.network(dict(zip(names, columns, strict=True)), *more)
        return found
