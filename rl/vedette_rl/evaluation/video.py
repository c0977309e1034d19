"""An episode as a video: the pictures that the environment shows while a policy plays greedily."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Policy
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import make_env
from vedette_rl.envs.process_guard import ProcessGuard
from vedette_rl.envs.registry import install_hint
from vedette_rl.envs.slow_calls import SlowCall
from vedette_rl.envs.vector_env import Env
from vedette_rl.errors import CannotRenderError, VideoError
from vedette_rl.evaluation.evaluator import EnvironmentPolicy
from vedette_rl.storage.write_errors import describe_write_error

Frame = NDArray[np.uint8]

FRAMES_MAX = 3600
FPS = 30
"""Frames a second where the environment gives no number."""


class EpisodeVideo:
    """The episode of one seed, the same that an evaluation with this seed begins with.

    Args:
        config: the environment's configuration; it must be able to render.
        seed: the seed of the episode.

    Raises:
        CannotRenderError: it shows no pictures.
        UnknownEnvironmentError: it cannot be made here.
    """

    def __init__(self, config: EnvConfig, seed: int) -> None:
        for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
            os.environ.setdefault(driver, "dummy")  # pygame would otherwise open a screen
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium's of render modes: ours is an error
            self._guard = ProcessGuard()
            self._env: Env = make_env(
                config.for_evaluation(), render_mode="rgb_array", guard=self._guard
            )
        self._id = config.id
        self._seed = seed
        self.fps = max(1, round(self._env.metadata.get("render_fps") or FPS))

    def frames(self, policy: Policy, *, most: int = FRAMES_MAX) -> Iterator[Frame]:
        """The pictures ``(height, width, 3)``, from the first to the episode's end or `most`."""
        env = self._env
        act = EnvironmentPolicy(policy, env)
        with SlowCall("reset"):
            obs, _ = self._guard.call(env.reset, seed=self._seed)
        over = False
        for shown in range(most):
            yield self._picture()
            if over or shown == most - 1:
                return
            action = act(obs, begins=shown == 0)
            obs, _, terminated, truncated, _ = self._guard.call(env.step, action)
            over = bool(terminated or truncated)

    def _picture(self) -> Frame:
        try:
            picture: Any = self._guard.call(self._env.render)  # as the environment likes
        except gym.error.DependencyNotInstalled as error:
            raise VideoError(f"environment {self._id!r}: {install_hint(error)}") from error
        except NotImplementedError as error:  # gymnasium.Env's own
            raise CannotRenderError(self._id, "it has no render()") from error
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise CannotRenderError(self._id, "its render() gave no picture")
        return self._as_bytes(picture)

    def _as_bytes(self, picture: NDArray[Any]) -> Frame:  # of any numbers
        """A picture of bytes; one of floats is from 0 to 1, as matplotlib has it."""
        if picture.dtype == np.uint8:
            return np.asarray(picture, np.uint8)
        if picture.dtype.kind == "f":
            picture, most = picture * 255.0, "1 as floats"
        else:
            most = "255"
        if not ((picture >= 0) & (picture <= 255)).all():
            raise CannotRenderError(self._id, f"its render() gave numbers outside of 0 to {most}")
        frame: Frame = np.rint(picture).astype(np.uint8)
        return frame

    def close(self) -> None:
        """Close the environment."""
        self._guard.call(self._env.close)


def check_video_path(path: Path) -> None:
    """Check that a video of this name can be written here.

    Raises:
        VideoError: the message has what to install or how to name it.
    """
    if path.suffix not in (".gif", ".mp4"):
        raise VideoError(f"{path}: a video is named .gif or .mp4")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise VideoError(f"{path}: name a file in a folder that exists")
    needed = ("PIL",) if path.suffix == ".gif" else ("imageio", "imageio_ffmpeg")
    missing = [module for module in needed if importlib.util.find_spec(module) is None]
    if missing:
        other = ", or name it .gif" if path.suffix == ".mp4" else ""
        raise VideoError(
            f"{path}: {missing[0]} is not installed: pip install 'vedette[video]'{other}"
        )


def write_video(path: Path, frames: Iterator[Frame], fps: int) -> int:
    """Write a video, GIF or MP4 by the name's ending; return the number of its pictures.

    Raises:
        VideoError: as `check_video_path`, or the disk refuses.
    """
    check_video_path(path)
    try:
        write = _write_gif if path.suffix == ".gif" else _write_mp4
        return write(path, frames, fps)
    except OSError as error:
        raise VideoError(f"{path}: {describe_write_error(error, path)}") from error


def _write_gif(path: Path, frames: Iterator[Frame], fps: int) -> int:
    from PIL import Image

    # GIF counts hundredths of a second, and viewers slow down what is shown for less than two.
    every = max(1, round(fps / 50))
    pictures: Sequence[Image.Image] = [
        Image.fromarray(frame).quantize(64)
        for number, frame in enumerate(frames)
        if number % every == 0
    ]
    duration_ms = max(20, round(100 * every / fps) * 10)
    first = pictures[0]
    rest = pictures[1:]
    first.save(path, save_all=True, append_images=rest, duration=duration_ms, loop=0)
    return len(pictures)


def _write_mp4(path: Path, frames: Iterator[Frame], fps: int) -> int:
    import imageio.v2 as imageio  # type: ignore[import-not-found, unused-ignore]  # an option

    count = 0
    opened: Any = imageio.get_writer(path, fps=fps, macro_block_size=2)  # its types lack methods
    with opened as writer:
        for frame in frames:
            writer.append_data(frame)
            count += 1
    return count
