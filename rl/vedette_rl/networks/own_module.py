"""Networks of the user's own: what an `nn.Module` must be to learn here and act elsewhere."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from vedette_rl.envs.spaces import observation_columns
from vedette_rl.errors import CustomNetworkError
from vedette_rl.named import import_by_name


def make_custom_module(name: str, *args: object) -> nn.Module:
    """The network of this name, made with these arguments.

    Raises:
        UnknownNameError: nothing of its name can be imported.
        CustomNetworkError: it is none, or one that cannot travel.
    """
    network = import_by_name("agent.network", name)(*args)
    if not isinstance(network, nn.Module):
        raise CustomNetworkError(name, f"it made a {type(network).__name__}, not an nn.Module")
    # weights of two names (tied layers) are one parameter, which travels by its first
    parameters = dict(network.named_parameters(remove_duplicate=False))
    for key, tensor in network.state_dict().items():
        if key not in parameters:
            raise CustomNetworkError(
                name,
                f"its buffer {key!r} would not reach the actors; normalise by LayerNorm, not "
                "BatchNorm, or register the buffer with persistent=False",
            )
        if tensor.dtype != torch.float32:
            raise CustomNetworkError(name, f"its {key!r} is {tensor.dtype}, not float32")
    if not parameters:
        raise CustomNetworkError(name, "it has no parameters to learn")
    return network


@torch.no_grad()
def probe_output_shape(network: nn.Module, observation: gym.Space[Any]) -> tuple[int, ...]:
    """The shape of what a network gives for two observations of zeros; () for what is no tensor."""
    obs = {
        leaf.name: torch.zeros(2, *leaf.shape, dtype=_torch_dtype(leaf.dtype))
        for leaf in observation_columns(observation)
    }
    return tuple(getattr(network(obs), "shape", ()))


class CustomEncoder(nn.Module):
    """An encoder of the user's own: from an observation to features, in front of an agent's layers.

    ::

        class MyEncoder(nn.Module):
            def __init__(self, observation: gym.Space) -> None: ...
            def forward(self, obs: torch.Tensor) -> torch.Tensor: ...     # (B, *shape) -> (B, F)

    `obs` comes as the environment gives it (float32 for float64, uint8 images unscaled); of a
    dictionary or tuple observation it is a mapping from ``obs/KEY`` to tensors.

    Raises:
        UnknownNameError: nothing of its name can be imported.
        CustomNetworkError: it gives no features, or cannot travel.
    """

    def __init__(self, name: str, observation: gym.Space[Any]) -> None:
        super().__init__()
        self.net = make_custom_module(name, observation)
        shape = probe_output_shape(self, observation)
        if len(shape) != 2 or shape[0] != 2:
            raise CustomNetworkError(
                name, f"it gave {shape} for 2 observations, not (2, features): flatten it"
            )
        self.features = shape[1]

    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        """``(B, F)``."""
        x_BF: torch.Tensor = self.net(obs.get("obs", obs))
        return x_BF


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
