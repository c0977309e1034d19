"""The encoder: converts an observation's columns to features, in torch.

Shapes: B rows, C channels, H height, W width, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from vedette_rl.device.ranks import draw_rows
from vedette_rl.envs.spaces import observation_columns
from vedette_rl.errors import CustomNetworkError
from vedette_rl.import_by_name import import_by_name
from vedette_rl.networks.observation import (
    NORM_EPS,
    CustomInput,
    FlatPart,
    Image,
    NetworkInput,
    Parts,
    PixelShift,
    count_features,
    images_of,
    shift_in_pixels,
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


class ImageEncoder(nn.Module):
    """The convolutions of one image."""

    def __init__(self, image: Image) -> None:
        super().__init__()
        self._image = image
        channels = image.channels
        for k, (out, kernel, stride) in enumerate(image.convolutions, start=1):
            self.add_module(f"conv{k}", nn.Conv2d(channels, out, kernel, stride))
            channels = out
        self.features = count_features(image)

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, F)`` float32 of a uint8 image, which is scaled here, on the device."""
        return self.convolve(channels_first(self._image, obs[self._image.column]))

    def convolve(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """``(B, F)`` of uint8 pixels."""
        x_BCHW = x_BCHW.float().mul_(self._image.scale)
        for convolution in self.children():
            x_BCHW = functional.relu(convolution(x_BCHW), inplace=True)
        return x_BCHW.flatten(1)


def channels_first(image: Image, pixels: torch.Tensor) -> torch.Tensor:
    """A column of images ``(B, C, H, W)``."""
    if image.layout == "channels_last":
        pixels = pixels.movedim(-1, -3)
    return pixels.reshape(-1, image.channels, image.height, image.width)


class Branch(nn.Module):
    """Features of one part of an observation: ``tanh(norm(linear(x)))``.

    The bottleneck of DrQ-v2's networks (arXiv:2107.09645, section 3.1), which keeps features of an
    image and of a joint angle of one size.
    """

    def __init__(self, width: int, features: int, image: Image | None) -> None:
        super().__init__()
        self.convolutions = ImageEncoder(image) if image else None
        self.linear = nn.Linear(width, features)
        self.norm = nn.LayerNorm(features, eps=NORM_EPS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(B, F)`` of pixels ``(B, C, H, W)``, or of a vector."""
        if self.convolutions is not None:
            x = self.convolutions.convolve(x)
        x_BF: torch.Tensor = torch.tanh(self.norm(self.linear(x)))
        return x_BF


class PartsEncoder(nn.Module):
    """Images and a vector, each by its own branch; their features are concatenated."""

    def __init__(self, seen: Parts) -> None:
        super().__init__()
        self._seen = seen
        for name, (width, features) in seen.branches.items():
            image = None if name == "vector" else seen.images[int(name.removeprefix("image"))]
            self.add_module(name, Branch(width, features, image))
        self._vector = FlatEncoder(seen.vector) if seen.vector else None
        self.features = count_features(seen)

    def forward(self, obs: Obs) -> torch.Tensor:
        """``(B, F)`` float32."""
        images = self._seen.images
        pixels = [channels_first(image, obs[image.column]) for image in images]
        if self._seen.shared:  # all images in one pass
            together = self.get_submodule("image0")(torch.cat(pixels))
            # not chunk: an exported graph would take its example's number of rows alone
            features = list(together.unflatten(0, (len(images), -1)).unbind())
        else:
            features = [self.get_submodule(f"image{k}")(x) for k, x in enumerate(pixels)]
        if self._vector is not None:
            features.append(self.get_submodule("vector")(self._vector(obs)))
        return torch.cat(features, dim=1)


BuiltInEncoder = FlatEncoder | ImageEncoder | PartsEncoder


def build_encoder(seen: NetworkInput) -> BuiltInEncoder | CustomEncoder:
    """The encoder of what a network sees (`vedette_rl.networks.observation.choose_input`)."""
    match seen:
        case Image():
            return ImageEncoder(seen)
        case Parts():
            return PartsEncoder(seen)
        case CustomInput(name, observation):
            return CustomEncoder(name, observation)
        case _:
            return FlatEncoder(seen)


class RandomShift:
    """Shifts images of a batch at random, each by up to `shift` up or down and left or right.

    The edge's pixels are repeated (DrQ-v2, arXiv:2107.09645, section 3.1; its interpolation is
    between whole pixels). All frames of a stack are shifted alike.

    Args:
        seen: names the images; of a custom network there are none.
        shift: pixels at most; 0 leaves the images as they are.
        device: torch's name of the batches' device.
        seed: the seed of the shifts.

    Attributes:
        generator: draws the shifts; a part of the agent's state.
    """

    def __init__(self, seen: NetworkInput, shift: PixelShift, *, device: str, seed: int) -> None:
        self._images = images_of(seen) if shift else ()
        self._bound = shift
        self.generator = torch.Generator(device).manual_seed(seed)

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The generator, if it draws anything."""
        return (self.generator,) if self._images else ()

    def __call__(self, obs: Obs) -> Obs:
        """The columns ``obs...``, with shifted images."""
        if not self._images:
            return obs
        shifted = {image.column: self._shift(image, obs[image.column]) for image in self._images}
        return {**obs, **shifted}

    def _shift(self, image: Image, pixels: torch.Tensor) -> torch.Tensor:
        height_axis = pixels.dim() - (3 if image.layout == "channels_last" else 2)
        bound = shift_in_pixels(image, self._bound)
        pixels = self._shift_along(height_axis, pixels, bound)
        return self._shift_along(height_axis + 1, pixels, bound)

    def _shift_along(self, axis: int, pixels: torch.Tensor, bound: int) -> torch.Tensor:
        rows = len(pixels)
        size = pixels.shape[axis]
        device = pixels.device
        by_B1 = draw_rows(partial(torch.randint, 2 * bound + 1), (rows, 1), self.generator)
        from_BS = torch.arange(size, device=device) + (by_B1 - bound)
        shape = [rows, *(1 for _ in pixels.shape[1:])]
        shape[axis] = size
        return pixels.gather(axis, from_BS.clamp_(0, size - 1).view(shape).expand(pixels.shape))


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
    """A custom encoder: from an observation to features, in front of an agent's layers.

    ::

        class MyEncoder(nn.Module):
            def __init__(self, observation: gym.Space) -> None: ...
            def forward(self, obs: torch.Tensor) -> torch.Tensor: ...     # (B, *shape) -> (B, F)

    `obs` has the environment's shape (float32 for float64, and normalised where the agent's
    `normalize_observations` is on; uint8 images unscaled); of a dictionary or tuple observation it
    is a mapping from ``obs/KEY`` to tensors.

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
