"""A network that learns no more, in front of an environment's images."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import make_env, make_vector_environment, probe_environment
from vedette_rl.errors import CustomNetworkError, ImportNotAllowedError, UnknownNameError
from vedette_rl.networks.frozen_encoder import FrozenEncoder
from vedette_rl.networks.observation import describe_input
from vedette_rl.testing import VisualReach

IMAGE = gym.spaces.Box(0, 255, (40, 48, 3), np.uint8)
STATE = gym.spaces.Box(-1, 1, (2,), np.float32)


class Means(nn.Module):
    """The mean of each channel."""

    def __init__(self, **pretrained_cfg: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.drop = nn.Dropout(0.5)
        if pretrained_cfg:
            self.pretrained_cfg = pretrained_cfg
        self.seen: list[tuple[int, ...]] = []

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        self.seen.append(tuple(x_BCHW.shape))
        return self.drop(self.weight * x_BCHW).mean(dim=(2, 3))


def square(x: int) -> int:
    return x * x


class Uncalled(nn.Module):
    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        return x_BCHW


class Cameras(gym.Env[Any, Any]):
    """Its picture has the value 51 in channel 0, 102 in 1, 255 in 2."""

    def __init__(self, space: gym.Space[Any] = IMAGE) -> None:
        self.observation_space = space
        self.action_space = gym.spaces.Discrete(2)
        picture = np.broadcast_to(np.array([51, 102, 255], np.uint8), IMAGE.shape).copy()
        parts = {"front": picture, "back": picture[:, :, ::-1].copy(), "state": np.ones(2, "f")}
        self._obs = parts if isinstance(space, gym.spaces.Dict) else picture

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._obs, 0.0, False, False, {}


BOTH = gym.spaces.Dict({"front": IMAGE, "back": IMAGE, "state": STATE})
HERE = f"{__name__}"


def test_an_image_becomes_its_features() -> None:
    env = FrozenEncoder(Cameras(), f"{HERE}:Means")
    assert env.observation_space == gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    obs, _ = env.reset()
    np.testing.assert_allclose(obs, [0.2, 0.4, 1.0], rtol=1e-6)
    assert obs.dtype == np.float32
    np.testing.assert_array_equal(env.step(0)[0], obs)  # no dropout, no gradient


def test_parts_of_a_dictionary_and_those_that_stay() -> None:
    env = FrozenEncoder(Cameras(BOTH), f"{HERE}:Means", parts=["back"])
    obs, _ = env.reset()
    np.testing.assert_allclose(obs["back"], [1.0, 0.4, 0.2], rtol=1e-6)
    assert obs["front"].dtype == np.uint8
    assert env.observation_space.contains(obs)
    every, _ = FrozenEncoder(Cameras(BOTH), f"{HERE}:Means").reset()
    assert {name: part.shape for name, part in every.items()} == {
        "front": (3,),
        "back": (3,),
        "state": (2,),
    }


def test_pixels_are_scaled_as_the_network_was_trained() -> None:
    trained = {"mean": [0.2, 0.2, 0.5], "std": [1.0, 0.1, 0.5], "input_size": [3, 24, 32]}
    for fixed, size in [(False, (40, 48)), (True, (24, 32))]:
        env = FrozenEncoder(Cameras(), f"{HERE}:Means", {**trained, "fixed_input_size": fixed})
        obs, _ = env.reset()
        np.testing.assert_allclose(obs, [0.0, 2.0, 1.0], atol=1e-5)
        assert env._network.seen[-1] == (1, 3, *size)


def test_pixels_that_do_not_end_at_255_are_divided_as_the_wrapper_is_told() -> None:
    board = gym.spaces.Box(0, 51, IMAGE.shape, np.uint8)
    with pytest.warns(UserWarning, match=r"by 255, .* ends at 51: kwargs\.image_max = 51"):
        before, _ = FrozenEncoder(Cameras(board), f"{HERE}:Means").reset()
    now, _ = FrozenEncoder(Cameras(board), f"{HERE}:Means", image_max=51).reset()
    np.testing.assert_allclose(now, before * 5, rtol=1e-5)


@pytest.mark.parametrize(
    ("network", "arguments", "parts", "error", "message"),
    [
        ("nowhere:Net", {}, [], UnknownNameError, "no module 'nowhere'"),
        (f"{HERE}:square", {"x": 3}, [], CustomNetworkError, "made a int, not an nn.Module"),
        (f"{HERE}:Uncalled", {}, [], CustomNetworkError, r"gave \(1, 3, 40, 48\) for 1 image"),
        (
            f"{HERE}:Means",
            {"mean": [0.0, 0.0], "std": 1.0},
            [],
            CustomNetworkError,
            r"takes no images \(1, 3, 40, 48\)",
        ),
        (f"{HERE}:Means", {}, ["side"], CustomNetworkError, "whole observation: leave parts out"),
    ],
)
def test_what_does_not_fit_is_named(
    network: str, arguments: dict[str, Any], parts: list[str], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        FrozenEncoder(Cameras(), network, arguments, parts)


def test_a_missing_timm_is_named_with_the_key_and_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UnknownNameError, match=r"^kwargs.network of .*`pip install timm`$"):
        FrozenEncoder(Cameras(), "timm:create_model")


def test_unknown_parts_are_told_the_images_alone() -> None:
    with pytest.raises(CustomNetworkError, match=r"parts names side, and .* are back, front$"):
        FrozenEncoder(Cameras(BOTH), f"{HERE}:Means", parts=["front", "side"])


def test_the_start_says_which_images_became_features() -> None:
    spaces = probe_environment(wrapped("vedette_rl.testing:VisualReach"))
    shape = VisualReach().observation_space["camera"].shape  # type: ignore[index]
    said = describe_input(SacConfig(), spaces.observation)
    assert said == f"network input: obs/camera: {shape[-1]} features of an image {shape}"


def test_an_observation_without_images_is_refused() -> None:
    with pytest.raises(CustomNetworkError, match="no image"):
        FrozenEncoder(Cameras(STATE), f"{HERE}:Means")


class Untrained(Means):
    def __init__(self, trained: bool = False) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3) if trained else torch.randn(3))


def test_random_weights_are_refused_at_the_start_and_seeds_stay_as_they_are() -> None:
    env_id = "vedette_rl.testing:VisualReach"
    network = f"{HERE}:Untrained"
    torch.manual_seed(3)
    expected = "weights are random, .* \\(bias\\); load trained ones .*arguments.pretrained=true"
    with pytest.raises(CustomNetworkError, match=f"^the FrozenEncoder's network is .*{expected}"):
        probe_environment(wrapped(env_id, network=network))
    probe_environment(wrapped(env_id, network=network, arguments={"trained": True}))
    drawn, _ = torch.randn(3), torch.manual_seed(3)
    torch.randn(3)  # of the first one
    assert torch.equal(drawn, torch.randn(3))


def wrapped(env_id: str, **arguments: Any) -> EnvConfig:
    name = "vedette_rl.networks.frozen_encoder:FrozenEncoder"
    kwargs = {"network": f"{HERE}:Means", **arguments}
    return EnvConfig.model_validate({"id": env_id, "wrappers": [{"name": name, "kwargs": kwargs}]})


def test_it_is_a_wrapper_by_name_and_its_network_is_asked_for_too() -> None:
    config = wrapped("vedette_rl.testing:VisualReach")
    envs = make_vector_environment(config, 2, seed=1)
    obs = envs.reset()
    channels = VisualReach().observation_space["camera"].shape[-1]  # type: ignore[index]
    assert obs["obs/camera"].shape == (2, channels)
    envs.close()
    with pytest.raises(ImportNotAllowedError, match=HERE.partition(".")[0]):
        make_env(config, allow_import=lambda module: module.startswith("vedette_rl"))
