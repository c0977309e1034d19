"""Images become the features of a network that was trained before and learns no more."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from numpy.typing import NDArray

from vedette_rl.envs.vector_env import Env
from vedette_rl.errors import CustomNetworkError, UnknownNameError
from vedette_rl.import_by_name import import_by_name
from vedette_rl.networks.observation import PIXEL_MAX, ImageFeatures, find_image, range_end
from vedette_rl.networks.threads import load_torch_single_threaded

if TYPE_CHECKING:
    import torch

_NORMALIZED = {"mean": 0.0, "std": 1.0}  # of a network that names no others


def _import_maker(network: str) -> Any:  # whatever its author made it
    try:
        return import_by_name("kwargs.network of FrozenEncoder", network)
    except UnknownNameError as error:
        if re.match(r"timm\b", network) and not find_spec("timm"):
            why = "timm is not installed: `pip install timm`"
            raise UnknownNameError(error.named_by, network, why) from error
        raise


def _misfit(network: str, why: str) -> CustomNetworkError:
    return CustomNetworkError(network, why, "the FrozenEncoder's network")


class FrozenEncoder(gym.ObservationWrapper[Any, Any, Any]):
    """Gives features in place of images, each computed once, where the environment is.

    So actors send, and the replay holds, some hundred numbers for each image. An image is what
    `vedette_rl.networks.observation.find_image` takes for one: the observation, or a part of a
    dictionary, whose other parts stay as they are.

    ::

        env.wrappers = [{ name = "vedette_rl.networks.frozen_encoder:FrozenEncoder",
                          kwargs = { network = "timm:create_model",
                                     arguments = { model_name = "resnet18", pretrained = true,
                                                   num_classes = 0 } } }]

    Args:
        env: an environment with images.
        network: ``module:Name`` of what makes a torch module from images ``(B, C, H, W)`` to
            features ``(B, F)``. It gets pixels in [0, 1]; if it has the attribute `pretrained_cfg`
            (timm's models), pixels minus its ``mean`` over its ``std``, and where its size is fixed
            (``fixed_input_size``) in the height and width of its ``input_size``.
        arguments: arguments by name, for the function that makes the network.
        parts: the images of a dictionary that it takes; without any, all of them.
        image_max: what pixels are divided by: the largest that there is.

    Raises:
        UnknownNameError: nothing of its name can be imported.
        CustomNetworkError: it gives no features, or there is no image.
    """

    def __init__(
        self,
        env: Env,
        network: str,
        arguments: Mapping[str, Any] | None = None,
        parts: Sequence[str] = (),
        image_max: int = PIXEL_MAX,
    ) -> None:
        super().__init__(env)
        load_torch_single_threaded()
        import torch

        self._name = network
        self._make = partial(_import_maker(network), **(arguments or {}))
        made = self._make()
        if not isinstance(made, torch.nn.Module):
            raise _misfit(network, f"it made a {type(made).__name__}, not an nn.Module")
        self._network = made.eval().requires_grad_(False)
        trained: Mapping[str, Any] = {**_NORMALIZED, **getattr(made, "pretrained_cfg", {})}
        self._mean, self._std = (
            torch.tensor(trained[name], dtype=torch.float32).reshape(-1, 1, 1)
            for name in ("mean", "std")
        )
        self._size = tuple(trained["input_size"])[-2:] if trained.get("fixed_input_size") else ()
        seen = env.observation_space
        self._whole = not isinstance(seen, gs.Dict)
        spaces = {"": seen} if self._whole else dict(seen.spaces)  # type: ignore[attr-defined]  # a Dict's
        images = {
            part: find_image(part, space, image_max=image_max) for part, space in spaces.items()
        }
        only_images = {part: image for part, image in images.items() if image is not None}
        if not only_images:
            raise _misfit(network, f"the observation {seen} has no image")
        if unknown := ", ".join(part for part in parts if part not in only_images):
            known = ", ".join(filter(None, only_images)) or "the whole observation: leave parts out"
            raise _misfit(network, f"parts names {unknown}, and the images are {known}")
        self._images = {part: only_images[part] for part in parts or only_images}
        for part in self._images:
            if (end := range_end(spaces[part])) != image_max:
                warnings.warn(
                    f"FrozenEncoder divides {part or 'the image'} by {image_max}, and its space "
                    f"ends at {end}: kwargs.image_max = {end} divides it by that",
                    stacklevel=2,
                )
            shape = spaces[part].shape or ()
            spaces[part] = ImageFeatures(shape, len(self._encode(part, np.zeros(shape, np.uint8))))
        self.observation_space = spaces[""] if self._whole else gs.Dict(spaces)

    def refuse_random_weights(self) -> None:
        """Make the network a second time, under another seed, and compare: each environment makes
        its own. `probe_environment` calls it.

        Raises:
            CustomNetworkError: they differ.
        """
        import torch

        with torch.random.fork_rng(devices=()):
            torch.default_generator.seed()
            other = self._make()
        others = dict(other.named_parameters())  # a forward pass may add buffers, and change them
        for name, weights in self._network.named_parameters():
            if not torch.equal(weights, others[name]):
                why = f"its weights are random, and differ in each environment ({name})"
                fix = "load trained ones where it is made (timm: arguments.pretrained=true)"
                raise _misfit(self._name, f"{why}; {fix}")

    def observation(self, observation: Any) -> Any:
        """The observation with features ``(F,)`` in place of images."""
        if self._whole:
            return self._encode("", observation)
        return {
            **observation,
            **{part: self._encode(part, observation[part]) for part in self._images},
        }

    def _encode(self, part: str, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        import torch
        from torch.nn.functional import interpolate

        from vedette_rl.networks.encoder import channels_first

        with torch.inference_mode():
            x_BCHW = channels_first(self._images[part], torch.from_numpy(np.array(pixels)[None]))
            x_BCHW = x_BCHW.float() * self._images[part].scale
            if self._size and x_BCHW.shape[-2:] != self._size:
                x_BCHW = interpolate(x_BCHW, self._size, mode="bilinear", antialias=True)
            return self._features(x_BCHW)

    def _features(self, x_BCHW: torch.Tensor) -> NDArray[np.float32]:
        try:
            features = self._network((x_BCHW - self._mean) / self._std)
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            shape = tuple(x_BCHW.shape)
            why = f"it takes no images {shape}: {' '.join(str(error).split())[:200]}"
            raise _misfit(self._name, why) from error
        shape = tuple(getattr(features, "shape", ()))
        if len(shape) != 2 or len(features) != 1:
            why = f"it gave {shape or type(features).__name__} for 1 image, not (1, features)"
            raise _misfit(self._name, why)
        array: NDArray[np.float32] = features[0].float().numpy()
        return array
