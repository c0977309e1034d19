"""What a network sees of an observation, in numpy and in torch."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces as s

from vedette_rl.networks.encoder import NatureEncoder, build_encoder
from vedette_rl.networks.numpy_nature import NumpyNatureEncoder
from vedette_rl.networks.observation import (
    choose_input,
    count_features,
    find_image,
    flat_parts,
    flatten_observation,
    observation_parts,
)


def test_parts_are_named_as_their_columns() -> None:
    space = s.Dict(a=s.Box(0, 1, (2,)), b=s.Tuple((s.Discrete(2), s.Dict(c=s.MultiBinary(3)))))
    assert list(observation_parts(space)) == ["obs/a", "obs/b/0", "obs/b/1/c"]
    assert list(observation_parts(s.Discrete(2))) == ["obs"]


COLUMNS: list[tuple[gym.Space[Any], dict[str, Any], list[list[float]]]] = [
    (s.Box(-1, 1, (2,), np.float32), {"obs": [[0.5, -0.5]]}, [[0.5, -0.5]]),
    (s.Box(-1, 1, (), np.float32), {"obs": [0.5]}, [[0.5]]),
    (s.Box(0, 9, (1, 2), np.int32), {"obs": [[[3, 4]]]}, [[3, 4]]),
    (s.Box(0, 255, (2,), np.uint8), {"obs": np.array([[0, 255]], np.uint8)}, [[0, 1]]),
    (s.Box(0, 3, (2,), np.uint8), {"obs": np.array([[0, 3]], np.uint8)}, [[0, 3]]),
    (s.Discrete(3), {"obs": [2, 0]}, [[0, 0, 1], [1, 0, 0]]),
    (s.Discrete(3, start=-1), {"obs": [-1]}, [[1, 0, 0]]),
    (s.MultiDiscrete([2, 3]), {"obs": [[1, 2]]}, [[0, 1, 0, 0, 1]]),
    (s.MultiBinary(3), {"obs": np.array([[1, 0, 1]], np.int8)}, [[1, 0, 1]]),
    (
        s.Dict(a=s.Discrete(2), b=s.Box(0, 1, (1,), np.float32)),
        {"obs/a": [1], "obs/b": [[0.25]]},
        [[0, 1, 0.25]],
    ),
]


@pytest.mark.parametrize(("space", "obs", "expected"), COLUMNS)
def test_every_space_flattens_in_numpy_as_in_torch(
    space: gym.Space[Any], obs: dict[str, Any], expected: list[list[float]]
) -> None:
    columns = {name: np.array(column) for name, column in obs.items()}
    parts = flat_parts("dqn", space)
    in_numpy = flatten_observation(parts, columns)
    in_torch = build_encoder(parts)({k: torch.from_numpy(v) for k, v in columns.items()})
    assert in_numpy.dtype == np.float32
    assert in_torch.dtype == torch.float32
    assert count_features(parts) == in_numpy.shape[1]
    np.testing.assert_allclose(in_numpy, expected)
    np.testing.assert_allclose(in_torch.numpy(), expected)


def test_one_float_column_is_not_copied() -> None:
    obs = np.zeros((3, 4), np.float32)
    assert np.shares_memory(
        flatten_observation(flat_parts("dqn", s.Box(-1, 1, (4,))), {"obs": obs}), obs
    )


@pytest.mark.parametrize(
    ("shape", "layout", "channels"),
    [
        ((4, 84, 84), "channels_first", 4),
        ((84, 84, 4), "channels_last", 4),
        ((210, 160, 3), "channels_last", 3),
        ((84, 84), "no_channels", 1),
        ((4, 40, 48, 3), "channels_last", 12),
        ((4, 3, 40, 48), "channels_first", 12),
        ((2, 84, 84, 1), "channels_last", 2),
    ],
)
def test_an_images_layout_is_read_from_its_shape(
    shape: tuple[int, ...], layout: str, channels: int
) -> None:
    image = find_image(s.Dict(camera=s.Box(0, 255, shape, np.uint8)))
    assert image is not None
    assert (image.column, image.layout, image.channels) == ("obs/camera", layout, channels)


@pytest.mark.parametrize(
    "space",
    [
        s.Box(0, 255, (128,), np.uint8),
        s.Box(0, 1, (84, 84, 3), np.float32),
        s.Box(0, 255, (20, 20, 3), np.uint8),
        s.Box(0, 255, (40, 48, 3, 4), np.uint8),
        s.Box(0, 255, (2, 4, 40, 48, 3), np.uint8),
        s.Dict(a=s.Box(0, 255, (84, 84), np.uint8), b=s.Discrete(2)),
    ],
)
def test_what_is_no_image_is_flattened(space: gym.Space[Any]) -> None:
    assert find_image(space) is None
    assert isinstance(choose_input("dqn", "auto", space), tuple)


@pytest.mark.parametrize(("height", "width"), [(84, 84), (36, 36), (96, 61)])
def test_the_convolutions_width_is_known_beforehand(height: int, width: int) -> None:
    image = find_image(s.Box(0, 255, (height, width, 3), np.uint8))
    assert image is not None
    encoder = NatureEncoder(image)
    obs = {"obs": torch.zeros(2, height, width, 3, dtype=torch.uint8)}
    assert encoder(obs).shape == (2, encoder.features)


def test_layouts_of_the_same_picture_look_the_same() -> None:
    torch.manual_seed(0)
    picture = torch.randint(256, (2, 4, 40, 50), dtype=torch.uint8)
    first = find_image(s.Box(0, 255, (4, 40, 50), np.uint8))
    last = find_image(s.Box(0, 255, (40, 50, 4), np.uint8))
    assert first is not None
    assert last is not None
    one, other = NatureEncoder(first), NatureEncoder(last)
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(
        one({"obs": picture}), other({"obs": picture.permute(0, 2, 3, 1)}), rtol=1e-4, atol=1e-5
    )


def test_a_stack_of_colour_pictures_is_one_picture_of_all_their_channels() -> None:
    torch.manual_seed(0)
    frames = torch.randint(256, (2, 4, 40, 50, 3), dtype=torch.uint8)
    stack = find_image(s.Box(0, 255, (4, 40, 50, 3), np.uint8))
    flat = find_image(s.Box(0, 255, (12, 40, 50), np.uint8))
    assert stack is not None
    assert flat is not None
    one, other = NatureEncoder(stack), NatureEncoder(flat)
    other.load_state_dict(one.state_dict())
    channels = torch.cat([frame.permute(0, 3, 1, 2) for frame in frames.unbind(1)], dim=1)
    seen = one({"obs": frames})
    torch.testing.assert_close(seen, other({"obs": channels}), rtol=1e-4, atol=1e-5)
    arrays = {f"encoder.{name}": p.detach().numpy() for name, p in one.named_parameters()}
    in_numpy = NumpyNatureEncoder(stack, arrays)({"obs": frames.numpy()})
    np.testing.assert_allclose(in_numpy, seen.detach().numpy(), rtol=1e-4, atol=1e-5)
