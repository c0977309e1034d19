"""From an observation's columns to features, in torch.

Shapes: B rows, C channels, H height, W width, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from vedette_rl.envs.spaces import observation_columns
from vedette_rl.errors import CustomNetworkError
from vedette_rl.import_by_name import import_by_name
from vedette_rl.networks.observation import (
    CONVOLUTIONS,
    PIXEL_SCALE,
    CustomInput,
    FlatPart,
    Image,
    NetworkInput,
    count_features,
)

Obs = Mapping[str, torch.Tensor]


class FlatEncoder(nn.Module):
    """Every part of the observation, flattened into one vector; it has nothing to learn."""

    def __init__(self, parts: tuple[FlatPart, ...]) -> None:
        super().__init__()
        self._parts = parts
        self.features = count_features(parts)

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, F)`` float32."""
        flat = [_flatten(part, obs[part.column]) for part in self._parts]
        return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)


def _flatten(part: FlatPart, column: torch.Tensor) -> torch.Tensor:
    rows = column.flatten(1) if column.dim() > 1 else column.unsqueeze(1)
    if part.classes:
        return torch.cat(
            [
                functional.one_hot(rows[:, k].long() - start, n)
                for k, (n, start) in enumerate(zip(part.classes, part.starts, strict=True))
            ],
            dim=1,
        ).float()
    numbers = rows.float()
    return numbers if part.scale == 1.0 else numbers * part.scale


class NatureEncoder(nn.Module):
    """The convolutions of Mnih et al. 2015 (methods): 32 of 8x8, 64 of 4x4, 64 of 3x3."""

    def __init__(self, image: Image) -> None:
        super().__init__()
        self._image = image
        channels = (image.channels, *(out for out, _, _ in CONVOLUTIONS))
        self.conv1, self.conv2, self.conv3 = (
            nn.Conv2d(before, out, kernel, stride)
            for before, (out, kernel, stride) in zip(channels, CONVOLUTIONS, strict=False)
        )
        self.features = count_features(image)

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, F)`` float32 of a uint8 image, which is scaled to [0, 1] here, on the device."""
        image = self._image
        x = obs[image.column]
        if image.layout == "channels_last":
            x = x.movedim(-1, -3)
        x = x.reshape(-1, image.channels, image.height, image.width)
        x = x.float().mul_(PIXEL_SCALE)
        x = functional.relu(self.conv1(x), inplace=True)
        x = functional.relu(self.conv2(x), inplace=True)
        x = functional.relu(self.conv3(x), inplace=True)
        return x.flatten(1)


def build_encoder(seen: NetworkInput) -> FlatEncoder | NatureEncoder | CustomEncoder:
    """The encoder of what a network sees (`vedette_rl.networks.observation.choose_input`)."""
    match seen:
        case Image():
            return NatureEncoder(seen)
        case CustomInput(name, observation):
            return CustomEncoder(name, observation)
        case _:
            return FlatEncoder(seen)


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


class CustomQNetwork(nn.Module):
    """Hands columns to a network that knows none.

    Raises:
        UnknownNameError: nothing of its name can be imported.
        CustomNetworkError: it is no Q-network for these spaces, or one that cannot travel.
    """

    def __init__(self, name: str, observation: gym.Space[Any], actions: int) -> None:
        super().__init__()
        self.net = make_custom_module(name, observation, actions)
        if not any(parameter.requires_grad for parameter in self.net.parameters()):
            raise CustomNetworkError(
                name,
                "all its parameters are frozen (requires_grad=False), so nothing would learn; "
                "leave one layer at least to learn",
            )
        shape = probe_output_shape(self, observation)
        if shape != (2, actions):
            raise CustomNetworkError(
                name,
                f"it gave {shape} for 2 observations and {actions} actions, not (2, {actions})",
            )

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, A)``."""
        q_BA: torch.Tensor = self.net(obs.get("obs", obs))
        return q_BA
