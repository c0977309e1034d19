"""From an observation's columns to features, in torch.

Shapes: B rows, C channels, H height, W width, F features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from vedette_rl.networks.observation import (
    CustomInput,
    FlatPart,
    Image,
    NetworkInput,
    count_features,
)
from vedette_rl.networks.own_module import CustomEncoder

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
        self.conv1 = nn.Conv2d(image.channels, 32, kernel_size=8, stride=4)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=4, stride=2)
        self.conv3 = nn.Conv2d(64, 64, kernel_size=3, stride=1)
        self.features = 64 * _side_out(image.height) * _side_out(image.width)

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, F)`` float32 of a uint8 image, which is scaled to [0, 1] here, on the device."""
        image = self._image
        x = obs[image.column]
        if image.layout == "channels_last":
            x = x.movedim(-1, -3)
        x = x.reshape(-1, image.channels, image.height, image.width)
        x = x.float().mul_(1 / 255)
        x = functional.relu(self.conv1(x), inplace=True)
        x = functional.relu(self.conv2(x), inplace=True)
        x = functional.relu(self.conv3(x), inplace=True)
        return x.flatten(1)


def _side_out(pixels: int) -> int:
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        pixels = (pixels - kernel) // stride + 1
    return pixels


def build_encoder(seen: NetworkInput) -> FlatEncoder | NatureEncoder | CustomEncoder:
    """The encoder of what a network sees (`vedette_rl.networks.observation.choose_input`)."""
    match seen:
        case Image():
            return NatureEncoder(seen)
        case CustomInput(name, observation):
            return CustomEncoder(name, observation)
        case _:
            return FlatEncoder(seen)
