"""The input of a network: parts of an observation as one flat vector, or one image. No torch.

An observation's parts are the columns it travels in: ``obs``, or ``obs/KEY`` for the parts of a
dictionary or a tuple. Shapes: B rows, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vedette_rl.errors import NoImageError, UnsupportedSpaceError
from vedette_rl.import_by_name import is_import_name

CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Of Mnih et al. 2015 (methods): channels out, side of the kernel, stride."""

PIXEL_SCALE = 1 / 255
"""What uint8 pixels are multiplied by, in torch, in numpy and in exported graphs."""

SMALLEST_IMAGE = 36
"""Pixels: the shortest side that the three Nature convolutions leave anything of."""


@dataclass(frozen=True, slots=True)
class FlatPart:
    """The conversion of one column to features.

    Args:
        column: its name.
        width: features it becomes.
        scale: what numbers are multiplied by; `PIXEL_SCALE` for pixels.
        classes: for categories, how many each of its numbers can name: they become one-hot
            vectors. Empty for numbers.
        starts: for categories, the smallest value of each number.
    """

    column: str
    width: int
    scale: float = 1.0
    classes: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Image:
    """One uint8 image, or a stack of them: how its column becomes ``(B, C, height, width)``.

    Args:
        column: its name.
        channels: C; of a stack, those of all frames, the first frame's first.
        height: of the picture.
        width: of the picture.
        layout: of each frame.
    """

    column: str
    channels: int
    height: int
    width: int
    layout: Literal["channels_first", "channels_last", "no_channels"]


@dataclass(frozen=True, slots=True)
class CustomInput:
    """The whole observation, for a custom network (`vedette_rl.networks.encoder`)."""

    name: str
    observation: gym.Space[Any]


NetworkInput = Image | CustomInput | tuple[FlatPart, ...]
"""The input that a network takes from an observation."""


def observation_parts(space: gym.Space[Any], column: str = "obs") -> dict[str, gym.Space[Any]]:
    """The columns of an observation and the space of each, in the order they travel in."""
    match space:
        case spaces.Dict():
            children = {str(key): child for key, child in space.spaces.items()}
        case spaces.Tuple():
            children = {str(index): child for index, child in enumerate(space.spaces)}
        case _:
            return {column: space}
    parts: dict[str, gym.Space[Any]] = {}
    for key, child in children.items():
        parts.update(observation_parts(child, f"{column}/{key}"))
    return parts


def flat_parts(agent: str, space: gym.Space[Any]) -> tuple[FlatPart, ...]:
    """The conversion of every part of the observation to features.

    Raises:
        UnsupportedSpaceError: a part has no fixed size.
    """
    return tuple(_flat_part(agent, *part) for part in observation_parts(space).items())


def _flat_part(agent: str, column: str, space: gym.Space[Any]) -> FlatPart:
    match space:
        case spaces.Box():
            pixels = space.dtype == np.uint8 and int(space.high.max(initial=0)) == 255
            width = int(np.prod(space.shape, dtype=np.int64))
            return FlatPart(column, width, PIXEL_SCALE if pixels else 1.0)
        case spaces.MultiBinary():
            return FlatPart(column, int(np.prod(space.shape, dtype=np.int64)))
        case spaces.Discrete():
            return FlatPart(column, int(space.n), 1.0, (int(space.n),), (int(space.start),))
        case spaces.MultiDiscrete():
            classes = tuple(int(n) for n in space.nvec.flat)
            starts = tuple(int(n) for n in np.asarray(space.start).flat)
            return FlatPart(column, sum(classes), 1.0, classes, starts)
        case _:
            raise UnsupportedSpaceError(
                agent, "observation", space, "Box, Discrete, MultiDiscrete and MultiBinary"
            )


def find_image(space: gym.Space[Any]) -> Image | None:
    """The image that the observation is; None where it is something else.

    An image is the observation's only part, a uint8 Box of two or three dimensions, both sides at
    least `SMALLEST_IMAGE`. Of the first and the last axis of three, the shorter is the channels.
    A fourth axis in front is a stack of such images (`env.frame_stack`).
    """
    parts = observation_parts(space)
    column, only = next(iter(parts.items()), ("", None))
    if len(parts) != 1 or not isinstance(only, spaces.Box) or only.dtype != np.uint8:
        return None
    match only.shape:
        case (height, width):
            image = Image(column, 1, height, width, "no_channels")
        case (*stack, height, width, channels) if len(stack) < 2 and channels < height:
            image = Image(column, prod(stack) * channels, height, width, "channels_last")
        case (*stack, channels, height, width) if len(stack) < 2:
            image = Image(column, prod(stack) * channels, height, width, "channels_first")
        case _:
            return None
    return image if min(image.height, image.width) >= SMALLEST_IMAGE else None


def choose_input(agent: str, network: str, space: gym.Space[Any]) -> NetworkInput:
    """The input of a network of this kind (``auto``, ``mlp``, ``cnn`` or ``module:Name``).

    Raises:
        NoImageError: it is ``cnn``, and the observation is no image.
        UnsupportedSpaceError: it cannot take the observation.
    """
    if is_import_name(network):
        return CustomInput(network, space)
    image = find_image(space) if network != "mlp" else None
    if image is None and network == "cnn":
        raise NoImageError(space, SMALLEST_IMAGE)
    return image or flat_parts(agent, space)


def count_features(seen: Image | tuple[FlatPart, ...]) -> int:
    """F: the width of the flat vector, or of what the convolutions make of an image."""
    if not isinstance(seen, Image):
        return sum(part.width for part in seen)
    height, width, channels = seen.height, seen.width, seen.channels
    for channels, kernel, stride in CONVOLUTIONS:  # noqa: B007 - the last one's channels count
        height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    return channels * height * width


def flatten_observation(
    parts: tuple[FlatPart, ...], obs: Mapping[str, NDArray[Any]]
) -> NDArray[np.float32]:
    """The observation as ``(B, F)`` float32; a view where it is one float32 column already."""
    flat = [_flatten_part(part, obs[part.column]) for part in parts]
    return flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)


def _flatten_part(part: FlatPart, column: NDArray[Any]) -> NDArray[np.float32]:
    rows = column.reshape(len(column), -1)
    if part.classes:
        hot = np.zeros((len(rows), part.width), np.float32)
        first = 0
        for k, (n, start) in enumerate(zip(part.classes, part.starts, strict=True)):
            hot[np.arange(len(rows)), first + rows[:, k].astype(np.int64) - start] = 1.0
            first += n
        return hot
    numbers: NDArray[np.float32] = rows.astype(np.float32, copy=False)
    return numbers if part.scale == 1.0 else numbers * np.float32(part.scale)
