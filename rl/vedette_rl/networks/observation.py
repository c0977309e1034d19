"""The input of a network: one flat vector, one image, or images and a vector. No torch.

An observation's parts are the columns it travels in: ``obs``, or ``obs/KEY`` for the parts of a
dictionary or a tuple. Encoders are in `vedette_rl.networks.numpy_nets`, and in torch in
`vedette_rl.networks.encoder`.

Shapes: B rows, F features, C channels, H height, W width, K a kernel's side, O channels out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vedette_rl.errors import (
    InputError,
    NoImageError,
    TooManyCategoriesError,
    UnsupportedSpaceError,
)
from vedette_rl.import_by_name import is_import_name
from vedette_rl.networks.config import NetworkConfig
from vedette_rl.networks.convolutions import CONVOLUTIONS, Convolutions

PixelShift = int | Literal["auto"]
"""Pixels by which images are shifted at random at most, or ``auto``: 4 of 84, in proportion."""


PIXEL_MAX = 255
"""What the pixels of an image are divided by unless `agent.image_max` says otherwise."""

PIXEL_SCALE = 1 / PIXEL_MAX
"""What such pixels are multiplied by, in torch, in numpy and in exported graphs; `Image.scale` is
that of an image."""

SMALLEST_IMAGE = 8
"""Pixels: a shorter side is of a table rather than of a picture."""

CATEGORIES_MAX = 1 << 20
"""Categories of an observation, or of an action, each of which is a number in the network: 4 MB of
float32 for each row, and a gigabyte of weights beside a layer of 256."""

NORM_EPS = 1e-5
"""Added to the variance in a layer normalization: torch's default."""


@dataclass(frozen=True, slots=True)
class FlatPart:
    """The conversion of one column to features.

    Args:
        column: the column's name.
        width: features it becomes.
        scale: the factor of the numbers; `PIXEL_SCALE` for pixels.
        classes: for categories, how many of them each of its numbers can name: they become one-hot
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
        column: the column's name.
        channels: C; of a stack, those of all frames, the first frame's first.
        height: the height of the picture.
        width: the width of the picture.
        layout: the layout of each frame.
        convolutions: the convolutions that it goes through.
        scale: the factor of its pixels.
    """

    column: str
    channels: int
    height: int
    width: int
    layout: Literal["channels_first", "channels_last", "no_channels"]
    convolutions: Convolutions = CONVOLUTIONS["nature"]
    scale: float = PIXEL_SCALE

    @property
    def features(self) -> int:
        """F: the width of what the convolutions make of it; below 1 where it is too small."""
        height = self.height
        width = self.width
        channels = self.channels
        for channels, kernel, stride in self.convolutions:  # noqa: B007 - the last one's count
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        return channels * height * width if min(height, width) > 0 else 0


@dataclass(frozen=True, slots=True)
class Parts:
    """Images, and a vector of everything else: each becomes features, which are concatenated.

    Features of a part are ``tanh(norm(linear(x)))``, x what its convolutions give, or the vector.

    Args:
        images: the images in the order of their columns; at least one.
        vector: all other columns, flattened; may be empty.
        image_features: features of each image.
        vector_features: features of the vector.
        shared: the images go through the same weights.
    """

    images: tuple[Image, ...]
    vector: tuple[FlatPart, ...]
    image_features: int
    vector_features: int
    shared: bool

    @property
    def branches(self) -> dict[str, tuple[int, int]]:
        """The width of x and the features of each `tanh(norm(linear(x)))`, by name."""
        images = self.images[:1] if self.shared else self.images
        sizes = {f"image{k}": (one.features, self.image_features) for k, one in enumerate(images)}
        if self.vector:
            sizes["vector"] = (sum(part.width for part in self.vector), self.vector_features)
        return sizes


@dataclass(frozen=True, slots=True)
class CustomInput:
    """The whole observation, for a custom network (`vedette_rl.networks.encoder`)."""

    name: str
    observation: gym.Space[Any]


BuiltInInput = Image | Parts | tuple[FlatPart, ...]
NetworkInput = BuiltInInput | CustomInput
"""The input that a network takes from an observation."""


class ImageFeatures(spaces.Box):
    """The space of features that stand in place of an image, as `FrozenEncoder` gives them."""

    def __init__(self, image_shape: tuple[int, ...], features: int) -> None:
        super().__init__(-np.inf, np.inf, (features,), np.float32)
        self.image_shape = image_shape


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
        TooManyCategoriesError: its categories would be too long vectors.
    """
    return _flat_parts(agent, observation_parts(space))


def _flat_parts(agent: str, parts: Mapping[str, gym.Space[Any]]) -> tuple[FlatPart, ...]:
    """`flat_parts`, of these columns."""
    flat = tuple(_flat_part(agent, *part) for part in parts.items())
    count = 0
    for part in flat:
        count += part.width if part.classes else 0
        if count > CATEGORIES_MAX:
            name = repr(part.column)
            raise TooManyCategoriesError(agent, name, parts[part.column], count, CATEGORIES_MAX)
    return flat


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


def find_image(
    column: str,
    space: gym.Space[Any],
    convolutions: str = "auto",
    image_max: int = PIXEL_MAX,
) -> Image | None:
    """The image that a column is; None where it is something else.

    An image is a uint8 Box of two or three dimensions. Of the first and the last axis of three, the
    shorter is the channels. A fourth axis in front is a stack of such images (`env.frame_stack`).

    Args:
        column: the column's name.
        space: the space of one observation's part.
        convolutions: the convolutions that it is to go through, which must leave something of it;
            ``auto``: the first of ``nature`` and ``small`` that do. Without channels it is a
            picture only where it is large enough for the first: a smaller one may be any table.
        image_max: what its pixels are divided by.
    """
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return None
    match space.shape:
        case (height, width):
            image = Image(column, 1, height, width, "no_channels")
        case (*stack, height, width, channels) if len(stack) < 2 and channels < height:
            image = Image(column, prod(stack) * channels, height, width, "channels_last")
        case (*stack, channels, height, width) if len(stack) < 2:
            image = Image(column, prod(stack) * channels, height, width, "channels_first")
        case _:
            return None
    names = [convolutions]
    if convolutions == "auto":
        names = ["nature"] if image.layout == "no_channels" else ["nature", "small"]
    if min(image.height, image.width) < SMALLEST_IMAGE:
        return None
    scale = 1 / image_max
    fitting = (replace(image, convolutions=CONVOLUTIONS[name], scale=scale) for name in names)
    return next((image for image in fitting if image.features), None)


def range_end(space: gym.Space[Any]) -> int:
    """The largest value of a uint8 Box; 255 for one of zeros alone."""
    assert isinstance(space, spaces.Box), "an image is a Box"
    return int(space.high.max()) or PIXEL_MAX


def choose_input(config: NetworkConfig, space: gym.Space[Any]) -> NetworkInput:
    """The input of the network that a configuration asks for.

    Raises:
        NoImageError: `network` is ``cnn``, and no part of the observation is an image.
        InputError: `shared_cnn` is set, and the images differ in size; or `random_shift` leaves
            little of an image; or `image_max` names none.
        UnsupportedSpaceError, TooManyCategoriesError: it cannot take the observation.
    """
    if is_import_name(config.network):
        return CustomInput(config.network, space)
    parts = observation_parts(space)
    images_of_parts = {
        name: find_image(name, part, config.convolutions, config.image_max.get(name, PIXEL_MAX))
        for name, part in parts.items()
    }
    images = tuple(image for image in images_of_parts.values() if image)
    if config.network == "cnn" and not images:
        raise NoImageError(space, config.convolutions)
    if config.network == "mlp" or not images:
        return flat_parts(config.name, space)
    for image in images:
        shift_in_pixels(image, config.random_shift)  # refuses what is too large
    columns = [image.column for image in images]
    for column in config.image_max:
        if column not in columns:
            raise InputError(
                f"agent.image_max names {column!r}, and the images are {', '.join(columns)}: name "
                "one of them"
            )
    if len(parts) == 1 and not config.lone_image_is_normalized:
        return images[0]
    if config.shared_cnn and len({replace(image, column="") for image in images}) > 1:
        sizes = ", ".join(
            f"{name}: {parts[name]}" for name, image in images_of_parts.items() if image
        )
        raise InputError(
            f"agent.shared_cnn takes images of one shape and range, not {sizes}: "
            "set agent.shared_cnn=false"
        )
    others = {name: part for name, part in parts.items() if not images_of_parts[name]}
    vector = _flat_parts(config.name, others)
    return Parts(images, vector, config.image_features, config.vector_features, config.shared_cnn)


def shift_in_pixels(image: Image, shift: PixelShift) -> int:
    """The most pixels by which this image is shifted.

    Raises:
        InputError: they are more than a quarter of a side.
    """
    side = min(image.height, image.width)
    if shift == "auto":
        return round(side / 21)
    if shift > side // 4:
        raise InputError(
            f"agent.random_shift is {shift}, and {image.column} has {side} pixels a side: set "
            f"'auto', or {side // 4} at most, a quarter of it"
        )
    return shift


def images_of(seen: NetworkInput) -> tuple[Image, ...]:
    """The images among what a built-in network takes."""
    match seen:
        case Image():
            return (seen,)
        case Parts():
            return seen.images
        case _:
            return ()


def describe_input(config: NetworkConfig, space: gym.Space[Any]) -> str:
    """One line that says which parts go through convolutions, which pictures do not, and which are
    features already; empty where there are none.
    """
    seen = choose_input(config, space)
    if isinstance(seen, CustomInput):
        return ""
    parts = observation_parts(space)
    images = [image.column for image in images_of(seen)]
    said = []
    if images:
        said.append(f"{', '.join(images)} through convolutions")
    said += [_describe_range(image, parts[image.column]) for image in odd_ranges(config, space)]
    flat = {name: part for name, part in parts.items() if name not in images}
    for name, part in flat.items():
        if isinstance(part, ImageFeatures):
            said.append(f"{name}: {len(part.low)} features of an image {part.image_shape}")
        if len(part.shape or ()) > 2 and prod(part.shape or ()) >= _MANY_NUMBERS:
            said.append(f"{name} ({part.dtype} {part.shape}) flattened: {_why_flat(config, part)}")
    return f"network input: {'; '.join(said)}" if said else ""


def odd_ranges(config: NetworkConfig, space: gym.Space[Any]) -> tuple[Image, ...]:
    """The images that a built-in network takes and whose space does not end at 255."""
    parts = observation_parts(space)
    images = images_of(choose_input(config, space))
    return tuple(image for image in images if range_end(parts[image.column]) != PIXEL_MAX)


def _describe_range(image: Image, space: gym.Space[Any]) -> str:
    """One of `odd_ranges` and what it is divided by."""
    divisor = round(1 / image.scale)
    ends = f"{image.column}'s space ends at {range_end(space)}"
    return f"{ends}, its pixels are divided by {divisor} (agent.image_max)"


_MANY_NUMBERS = 1024
"""A part of so many numbers and three dimensions is probably a picture."""


def _why_flat(config: NetworkConfig, part: gym.Space[Any]) -> str:
    if part.dtype != np.uint8:
        return "only uint8 images are taken through convolutions"
    if config.network == "mlp":
        return "agent.network is mlp"
    return f"too small, or no image, for agent.convolutions={config.convolutions}"


def count_features(seen: BuiltInInput) -> int:
    """F: the width of the flat vector, or of what an encoder makes of it."""
    match seen:
        case Image():
            return seen.features
        case Parts():
            vector = seen.vector_features if seen.vector else 0
            return len(seen.images) * seen.image_features + vector
        case _:
            return sum(part.width for part in seen)


Shapes = dict[str, tuple[int, ...]]
"""Names and shapes of a model's arrays, all float32."""


def encoder_shapes(seen: BuiltInInput) -> Shapes:
    """The arrays of an encoder, in torch's names and shapes."""
    match seen:
        case Image():
            return _convolution_shapes("encoder", seen)
        case Parts():
            shapes: Shapes = {}
            for name, (width, features) in seen.branches.items():
                prefix = f"encoder.{name}"
                if name != "vector":
                    image = seen.images[int(name.removeprefix("image"))]
                    shapes |= _convolution_shapes(f"{prefix}.convolutions", image)
                shapes[f"{prefix}.linear.weight"] = (features, width)
                shapes |= {
                    f"{prefix}.{array}": (features,)
                    for array in ("linear.bias", "norm.weight", "norm.bias")
                }
            return shapes
        case _:
            return {}


def _convolution_shapes(prefix: str, image: Image) -> Shapes:
    shapes: Shapes = {}
    channels = image.channels
    for k, (out, kernel, _) in enumerate(image.convolutions, start=1):
        shapes[f"{prefix}.conv{k}.weight"] = (out, channels, kernel, kernel)
        shapes[f"{prefix}.conv{k}.bias"] = (out,)
        channels = out
    return shapes


def describe_encoder(
    seen: BuiltInInput, space: gym.Space[Any]
) -> tuple[tuple[FlatPart, ...], list[list[Any]]]:
    """An encoder as the wire's page says: the parts it reads, and what each branch makes of them.

    No branch: the parts are the features.
    """
    match seen:
        case Image():
            part = FlatPart(seen.column, _pixels(seen), seen.scale)
            return (part,), [[part.width, _convolution_steps("encoder", seen, space)]]
        case Parts():
            images = tuple(FlatPart(one.column, _pixels(one), one.scale) for one in seen.images)
            branches = []
            for k, image in enumerate(seen.images):
                name = f"image{0 if seen.shared else k}"
                steps = _convolution_steps(f"encoder.{name}.convolutions", image, space)
                branches.append([images[k].width, [*steps, *_branch_steps(seen, name)]])
            if seen.vector:
                width = sum(part.width for part in seen.vector)
                branches.append([width, _branch_steps(seen, "vector")])
            return (*images, *seen.vector), branches
        case _:
            return seen, []


def _pixels(image: Image) -> int:
    return image.channels * image.height * image.width


def _convolution_steps(prefix: str, image: Image, space: gym.Space[Any]) -> list[list[Any]]:
    steps: list[list[Any]] = []
    channels = image.channels
    height = image.height
    width = image.width
    if image.layout == "channels_last":
        of_frame = (observation_parts(space)[image.column].shape or ())[-1]
        steps.append(["channels_first", channels // of_frame, height, width, of_frame])
    for k, (out, kernel, stride) in enumerate(image.convolutions, start=1):
        arrays = f"{prefix}.conv{k}.weight", f"{prefix}.conv{k}.bias"
        steps += [["convolution", *arrays, channels, height, width, out, kernel, stride], ["relu"]]
        channels = out
        height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    return steps


def _branch_steps(seen: Parts, name: str) -> list[list[Any]]:
    linear, norm = (
        (f"encoder.{name}.{layer}.weight", f"encoder.{name}.{layer}.bias")
        for layer in ("linear", "norm")
    )
    return [
        ["linear", *linear, *seen.branches[name]],
        ["normalize", NORM_EPS],
        ["scale", *norm],
        ["tanh"],
    ]
