"""Acting on images without torch: the convolutions in numpy in front of a policy on features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.config import NetworkConfig
from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.core.acting import Policy
from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_rl.named import is_import_name
from vedette_rl.networks.model_arrays import Shapes, check_arrays
from vedette_rl.networks.numpy_nature import NumpyNatureEncoder
from vedette_rl.networks.observation import Image, find_image

_ENCODER = "encoder."
_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels out, kernel, stride


class NumpyImagePolicy:
    """A `Policy`: what the built-in agents' image policies do, in numpy."""

    def __init__(
        self, config: NetworkConfig, image: Image, action: gym.Space[Any], seed: int
    ) -> None:
        self._image = image
        self._shapes, features = _encoder_shapes(image)
        # Behind the convolutions a network is the one on a flat observation of as many numbers.
        head = config.model_copy(update={"network": "mlp", "hidden_sizes": config.cnn_hidden_sizes})
        seen = gym.spaces.Box(0.0, np.inf, (features,), np.float32)
        self._head = BUILT_IN[config.name].build_policy(
            head, Spaces(seen, action), ranks=np.zeros(1), seed=seed
        )
        self._encoder: NumpyNatureEncoder | None = None

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on.

        Raises:
            ModelMismatchError: it is the model of another network.
        """
        arrays: dict[bool, dict[str, NDArray[Any]]] = {True: {}, False: {}}
        for name, array in model.arrays.items():
            arrays[name.startswith(_ENCODER)][name] = array
        check_arrays(self._shapes, arrays[True])
        self._head.sync_model(ModelInfo(model.version, arrays[False]))
        self._encoder = NumpyNatureEncoder(self._image, arrays[True])

    def act(self, obs: Mapping[str, NDArray[Any]], *, explore: bool) -> NDArray[Any]:
        """Actions ``(E, *shape)``."""
        if self._encoder is None:
            check_arrays(self._shapes, {})  # raises: it has no model to act on
            raise AssertionError("a network has arrays")
        columns: Columns = {"obs": self._encoder(obs)}
        return self._head.act(columns, explore=explore)


def _encoder_shapes(image: Image) -> tuple[Shapes, int]:
    """The arrays of the convolutions, and the features they end in."""
    shapes: Shapes = {}
    channels, height, width = image.channels, image.height, image.width
    for k, (out, kernel, stride) in enumerate(_CONVOLUTIONS, start=1):
        shapes[f"{_ENCODER}conv{k}.weight"] = (out, channels, kernel, kernel)
        shapes[f"{_ENCODER}conv{k}.bias"] = (out,)
        channels = out
        height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    return shapes, channels * height * width


def image_policy(
    config: Any,  # of any agent
    spaces: Spaces,
    seed: int,
) -> Policy | None:
    """The policy in numpy where a built-in agent sees an image; None for everything else."""
    if config.name not in BUILT_IN or config.network == "mlp" or is_import_name(config.network):
        return None
    image = find_image(spaces.observation)
    return None if image is None else NumpyImagePolicy(config, image, spaces.action, seed)
