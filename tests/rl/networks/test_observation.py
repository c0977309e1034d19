"""What a network sees of an observation, in numpy and in torch."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces as s

from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.errors import InputError, NoImageError
from vedette_rl.networks.convolutions import CONVOLUTIONS
from vedette_rl.networks.encoder import ImageEncoder, RandomShift, build_encoder
from vedette_rl.networks.numpy_nets import flatten_observation, numpy_encoder
from vedette_rl.networks.observation import (
    BuiltInInput,
    CustomInput,
    Image,
    Parts,
    choose_input,
    count_features,
    describe_encoder,
    describe_input,
    encoder_shapes,
    find_image,
    flat_parts,
    images_of,
    observation_parts,
    range_end,
    shift_in_pixels,
)
from vedette_rl.testing import sampled_obs


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
    image = find_image("obs/camera", s.Box(0, 255, shape, np.uint8))
    assert image is not None
    assert (image.column, image.layout, image.channels) == ("obs/camera", layout, channels)


@pytest.mark.parametrize(
    "space",
    [
        s.Box(0, 255, (128,), np.uint8),
        s.Box(0, 1, (84, 84, 3), np.float32),
        s.Box(0, 255, (7, 7, 3), np.uint8),
        s.Box(0, 255, (20, 20), np.uint8),
        s.Box(0, 255, (40, 48, 3, 4), np.uint8),
        s.Box(0, 255, (2, 4, 40, 48, 3), np.uint8),
        s.Dict(a=s.Box(0, 1, (84, 84), np.float32), b=s.Discrete(2)),
    ],
)
def test_what_is_no_image_is_flattened(space: gym.Space[Any]) -> None:
    assert isinstance(choose_input(DqnConfig(), space), tuple)
    with pytest.raises(NoImageError):
        choose_input(DqnConfig(network="cnn"), space)


@pytest.mark.parametrize(("height", "width"), [(84, 84), (36, 36), (96, 61)])
def test_the_convolutions_width_is_known_beforehand(height: int, width: int) -> None:
    image = find_image("obs", s.Box(0, 255, (height, width, 3), np.uint8))
    assert image is not None
    encoder = ImageEncoder(image)
    obs = {"obs": torch.zeros(2, height, width, 3, dtype=torch.uint8)}
    assert encoder(obs).shape == (2, encoder.features)


def test_layouts_of_the_same_picture_look_the_same() -> None:
    torch.manual_seed(0)
    picture = torch.randint(256, (2, 4, 40, 50), dtype=torch.uint8)
    first = find_image("obs", s.Box(0, 255, (4, 40, 50), np.uint8))
    last = find_image("obs", s.Box(0, 255, (40, 50, 4), np.uint8))
    assert first is not None
    assert last is not None
    one, other = ImageEncoder(first), ImageEncoder(last)
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(
        one({"obs": picture}), other({"obs": picture.permute(0, 2, 3, 1)}), rtol=1e-4, atol=1e-5
    )


def test_a_stack_of_colour_pictures_is_one_picture_of_all_their_channels() -> None:
    torch.manual_seed(0)
    frames = torch.randint(256, (2, 4, 40, 50, 3), dtype=torch.uint8)
    stack = find_image("obs", s.Box(0, 255, (4, 40, 50, 3), np.uint8))
    flat = find_image("obs", s.Box(0, 255, (12, 40, 50), np.uint8))
    assert stack is not None
    assert flat is not None
    one, other = ImageEncoder(stack), ImageEncoder(flat)
    other.load_state_dict(one.state_dict())
    channels = torch.cat([frame.permute(0, 3, 1, 2) for frame in frames.unbind(1)], dim=1)
    seen = one({"obs": frames})
    torch.testing.assert_close(seen, other({"obs": channels}), rtol=1e-4, atol=1e-5)
    arrays = {f"encoder.{name}": p.detach().numpy() for name, p in one.named_parameters()}
    in_numpy = numpy_encoder(stack, arrays)({"obs": frames.numpy()})
    np.testing.assert_allclose(in_numpy, seen.detach().numpy(), rtol=1e-4, atol=1e-5)


CAMERA = s.Box(0, 255, (48, 40, 3), np.uint8)
ROBOT = s.Dict(
    front=CAMERA,
    wrist=s.Box(0, 255, (3, 40, 48), np.uint8),
    joints=s.Box(-1, 1, (7,)),
    grip=s.Discrete(2),
)
TWO_CAMERAS = s.Dict(left=CAMERA, right=CAMERA, joints=s.Box(-1, 1, (7,)))


@pytest.mark.parametrize(
    ("height", "width", "convolutions", "chosen"),
    [
        (84, 84, "auto", "nature"),
        (64, 64, "auto", "nature"),
        (48, 48, "auto", "nature"),
        (36, 36, "auto", "nature"),
        (35, 64, "auto", "small"),
        (10, 10, "auto", "small"),
        (48, 48, "drq", "drq"),
        (64, 64, "small", "small"),
    ],
)
def test_the_convolutions_suit_the_size(
    height: int, width: int, convolutions: str, chosen: str
) -> None:
    image = find_image("obs", s.Box(0, 255, (height, width, 3), np.uint8), convolutions)
    assert image is not None
    assert image.convolutions == CONVOLUTIONS[chosen]
    obs = {"obs": torch.zeros(2, height, width, 3, dtype=torch.uint8)}
    assert ImageEncoder(image)(obs).shape == (2, image.features)


def test_convolutions_that_leave_nothing_are_refused_in_one_line() -> None:
    config = DqnConfig(network="cnn", convolutions="nature")
    with pytest.raises(NoImageError, match=r"large enough for agent\.convolutions=nature"):
        choose_input(config, s.Box(0, 255, (20, 20, 3), np.uint8))
    assert isinstance(choose_input(config, s.Dict(a=CAMERA, b=s.Discrete(2))), Parts)


def test_images_and_vectors_of_a_dictionary_have_a_branch_each() -> None:
    seen = choose_input(DqnConfig(image_features=50, vector_features=16), ROBOT)
    assert isinstance(seen, Parts)
    assert [image.column for image in seen.images] == ["obs/front", "obs/wrist"]
    assert [part.column for part in seen.vector] == ["obs/joints", "obs/grip"]
    assert seen.branches["vector"] == (9, 16)
    assert count_features(seen) == 50 + 50 + 16
    assert isinstance(choose_input(DqnConfig(network="mlp"), ROBOT), tuple)
    assert isinstance(choose_input(DqnConfig(), CAMERA), Image)
    assert isinstance(choose_input(SacConfig(), CAMERA), Parts)
    assert isinstance(choose_input(SacConfig(network="my:Encoder"), ROBOT), CustomInput)


def encoded(seen: BuiltInInput, space: s.Dict) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    encoder = build_encoder(seen)
    obs = sampled_obs(space, 5, 0)
    with torch.no_grad():
        for parameter in encoder.parameters():  # scales of 1 and shifts of 0 would hide a mistake
            parameter.add_(0.1 * torch.randn_like(parameter))
    arrays = {f"encoder.{name}": p.detach().numpy() for name, p in encoder.named_parameters()}
    assert {name: array.shape for name, array in arrays.items()} == encoder_shapes(seen)
    in_torch = encoder({name: torch.from_numpy(column) for name, column in obs.items()})
    return in_torch.detach().numpy(), numpy_encoder(seen, arrays)(obs), arrays


@pytest.mark.parametrize(
    ("space", "options"),
    [(ROBOT, {}), (TWO_CAMERAS, {"shared_cnn": True}), (TWO_CAMERAS, {"convolutions": "small"})],
)
def test_parts_are_encoded_in_numpy_as_in_torch(space: s.Dict, options: dict[str, Any]) -> None:
    seen = choose_input(DqnConfig(**options), space)
    assert isinstance(seen, Parts)
    in_torch, in_numpy, _ = encoded(seen, space)
    assert in_numpy.dtype == np.float32
    np.testing.assert_allclose(in_numpy, in_torch, rtol=1e-4, atol=2e-5)


def test_features_of_a_part_are_those_of_its_branch_alone() -> None:
    """Written out with torch's own functions."""
    seen = choose_input(DqnConfig(image_features=8, vector_features=4), ROBOT)
    assert isinstance(seen, Parts)
    in_torch, _, arrays = encoded(seen, ROBOT)
    obs = {name: torch.from_numpy(column) for name, column in sampled_obs(ROBOT, 5, 0).items()}
    of = {name.removeprefix("encoder."): torch.from_numpy(array) for name, array in arrays.items()}
    x = obs["obs/wrist"].float() / 255
    for k, stride in ((1, 4), (2, 2), (3, 1)):
        weight, bias = (of[f"image1.convolutions.conv{k}.{part}"] for part in ("weight", "bias"))
        x = torch.nn.functional.conv2d(x, weight, bias, stride).relu()
    joints = obs["obs/joints"]
    grip = torch.nn.functional.one_hot(obs["obs/grip"], 2)
    vectors = {"image1": x.flatten(1), "vector": torch.cat([joints, grip], 1)}
    for (name, vector), columns in zip(vectors.items(), (slice(8, 16), slice(16, 20)), strict=True):
        y = vector @ of[f"{name}.linear.weight"].T + of[f"{name}.linear.bias"]
        y = torch.nn.functional.layer_norm(y, y.shape[1:])
        y = (y * of[f"{name}.norm.weight"] + of[f"{name}.norm.bias"]).tanh()
        np.testing.assert_allclose(in_torch[:, columns], y.numpy(), rtol=1e-4, atol=2e-5)


def test_shared_cameras_have_one_set_of_weights() -> None:
    seen = choose_input(DqnConfig(shared_cnn=True), TWO_CAMERAS)
    assert isinstance(seen, Parts)
    assert {name.split(".")[1] for name in encoder_shapes(seen)} == {"image0", "vector"}
    encoder = build_encoder(seen)
    obs = {name: torch.from_numpy(c) for name, c in sampled_obs(TWO_CAMERAS, 3, 0).items()}
    swapped = {**obs, "obs/left": obs["obs/right"], "obs/right": obs["obs/left"]}
    left, right = encoder(obs)[:, :512].chunk(2, dim=1)
    torch.testing.assert_close(torch.cat([right, left], 1), encoder(swapped)[:, :512])
    with pytest.raises(InputError, match=r"obs/front.*obs/wrist.*shared_cnn=false"):
        choose_input(DqnConfig(shared_cnn=True), ROBOT)


BOARD = s.Box(0, 1, (10, 10, 4), np.uint8)
DEPTH = s.Box(0, 63, (36, 40, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "image_max", "divisor"),
    [
        (BOARD, {"obs": 1}, 1),
        (BOARD, {}, 255),
        (DEPTH, {"obs": 63}, 63),
        (CAMERA, {}, 255),
    ],
)
def test_images_are_divided_by_255_or_by_what_is_said_for_their_column(
    space: s.Box, image_max: dict[str, int], divisor: int
) -> None:
    config = DqnConfig(image_max=image_max)
    seen = choose_input(config, space)
    assert isinstance(seen, Image)
    assert seen.scale == 1 / divisor
    (part,), _ = describe_encoder(seen, space)
    assert part.scale == 1 / divisor  # what other languages act by
    in_torch, in_numpy, _ = encoded(seen, space)
    np.testing.assert_allclose(in_numpy, in_torch, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("high", "end"), [(1, 1), (255, 255), (np.full((9, 9, 2), [1, 9]), 9), (0, 255)], ids=str
)
def test_a_space_ends_at_its_largest_bound(high: Any, end: int) -> None:
    assert range_end(s.Box(0, high, (9, 9, 2), np.uint8)) == end


def test_planes_of_0_and_1_are_encoded_as_the_same_picture_of_0_and_255() -> None:
    config = DqnConfig(image_max={"obs": 1})
    picture = s.Box(0, 255, BOARD.shape, np.uint8)
    planes = sampled_obs(BOARD, 5, 0)["obs"]
    torch.manual_seed(0)
    encoder = build_encoder(choose_input(config, BOARD))
    arrays = {f"encoder.{name}": p.detach().numpy() for name, p in encoder.named_parameters()}
    of_board = numpy_encoder(choose_input(config, BOARD), arrays)({"obs": planes})
    of_picture = numpy_encoder(choose_input(DqnConfig(), picture), arrays)({"obs": planes * 255})
    np.testing.assert_allclose(of_board, of_picture, rtol=1e-5)


def test_each_image_of_a_dictionary_has_its_own_range() -> None:
    both = s.Dict(board=BOARD, depth=DEPTH)
    ends = {"obs/board": 1, "obs/depth": 63}
    seen = choose_input(DqnConfig(image_max=ends), both)
    assert isinstance(seen, Parts)
    assert [image.scale for image in seen.images] == [1, 1 / 63]
    in_torch, in_numpy, _ = encoded(seen, both)
    np.testing.assert_allclose(in_numpy, in_torch, rtol=1e-4, atol=2e-5)
    same = s.Dict(a=DEPTH, b=s.Box(0, 255, DEPTH.shape, np.uint8))
    choose_input(DqnConfig(shared_cnn=True), same)
    with pytest.raises(InputError, match=r"images of one shape and range.*shared_cnn=false"):
        choose_input(DqnConfig(shared_cnn=True, image_max={"obs/a": 63}), same)


def test_a_maximum_for_no_image_is_refused() -> None:
    with pytest.raises(InputError, match=r"image_max names 'obs/a', and the images are obs: name"):
        choose_input(DqnConfig(image_max={"obs/a": 9}), CAMERA)


def test_the_start_says_what_an_image_is_divided_by_that_does_not_end_at_255() -> None:
    said = describe_input(DqnConfig(image_max={"obs/b": 63}), s.Dict(a=CAMERA, b=DEPTH))
    assert "obs/b's space ends at 63, its pixels are divided by 63 (agent.image_max)" in said
    assert "ends at 1, its pixels are divided by 255 (" in describe_input(DqnConfig(), BOARD)
    assert "divided" not in describe_input(DqnConfig(), CAMERA)


def test_one_line_says_what_goes_through_convolutions_and_what_is_flattened() -> None:
    pictures = s.Dict(
        a=CAMERA, b=s.Box(0, 1, (40, 40, 3), np.float32), c=s.Box(0, 255, (6, 60, 60), np.uint8)
    )
    assert describe_input(DqnConfig(convolutions="nature"), pictures) == (
        "network input: obs/a, obs/c through convolutions; "
        "obs/b (float32 (40, 40, 3)) flattened: only uint8 images are taken through convolutions"
    )
    assert "agent.network is mlp" in describe_input(DqnConfig(network="mlp"), CAMERA)
    assert describe_input(DqnConfig(), s.Box(-1, 1, (4,))) == ""


@pytest.mark.parametrize(
    "shape", [(20, 24, 3), (3, 20, 24), (2, 20, 24, 3), (2, 3, 20, 24), (36, 40)]
)
def test_a_random_shift_moves_each_image_by_whole_pixels(shape: tuple[int, ...]) -> None:
    space = s.Dict(camera=s.Box(0, 255, shape, np.uint8), joints=s.Box(-1, 1, (2,)))
    seen = choose_input(DqnConfig(), space)
    assert isinstance(seen, Parts)
    (image,) = seen.images
    obs = {name: torch.from_numpy(column) for name, column in sampled_obs(space, 40, 0).items()}
    before = obs["obs/camera"].clone()
    shifted = RandomShift(seen, 2, device="cpu", seed=1)(obs)
    assert torch.equal(obs["obs/camera"], before)
    assert shifted["obs/joints"] is obs["obs/joints"]
    found = set()
    axis = 1 + len(shape) - (3 if image.layout == "channels_last" else 2)
    for old, new in zip(before.numpy(), shifted["obs/camera"].numpy(), strict=True):
        pad = [(2, 2) if k in (axis - 1, axis) else (0, 0) for k in range(old.ndim)]
        padded = np.pad(old, pad, mode="edge")  # their own formulation: pad, then crop
        crops = {
            (dy, dx): np.take(
                np.take(padded, range(dy, dy + old.shape[axis - 1]), axis - 1),
                range(dx, dx + old.shape[axis]),
                axis,
            )
            for dy in range(5)
            for dx in range(5)
        }
        found |= {at for at, crop in crops.items() if np.array_equal(crop, new)}
    assert len(found) > 12  # of 25, by 40 images: about 20


def test_a_shift_continues_from_its_generators_state() -> None:
    seen = choose_input(SacConfig(), CAMERA)
    obs = {"obs": torch.from_numpy(sampled_obs(CAMERA, 8, 0)["obs"])}
    one, other = (RandomShift(seen, 4, device="cpu", seed=seed) for seed in (0, 1))
    one(obs)
    other.generator.set_state(one.generator.get_state())
    assert torch.equal(one(obs)["obs"], other(obs)["obs"])
    assert not torch.equal(one(obs)["obs"], obs["obs"])
    off = RandomShift(seen, 0, device="cpu", seed=0)
    assert off(obs)["obs"] is obs["obs"]


@pytest.mark.parametrize(("side", "pixels"), [(84, 4), (48, 2), (128, 6), (16, 1), (8, 0)])
def test_an_automatic_shift_is_in_proportion_to_the_image(side: int, pixels: int) -> None:
    space = s.Box(0, 255, (side, 2 * side, 3), np.uint8)
    (image,) = images_of(choose_input(SacConfig(), space))
    assert shift_in_pixels(image, "auto") == pixels
    seen = choose_input(SacConfig(), space)
    obs = {"obs": torch.from_numpy(sampled_obs(space, 32, 0)["obs"])}
    one, other = (RandomShift(seen, by, device="cpu", seed=1)(obs) for by in ("auto", pixels))
    assert torch.equal(one["obs"], other["obs"])


def test_a_shift_by_more_than_a_quarter_of_an_image_is_refused() -> None:
    small, large = (s.Box(0, 255, (side, side, 3), np.uint8) for side in (48, 200))
    choose_input(SacConfig(random_shift=12), small)
    choose_input(SacConfig(random_shift=50), large)
    with pytest.raises(InputError, match=r"is 13, and obs/b has 48 .*'auto', or 12"):
        choose_input(SacConfig(random_shift=13), s.Dict(a=large, b=small))
