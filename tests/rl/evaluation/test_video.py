import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from vedette_rl.core import Columns, ModelInfo
from vedette_rl.envs import EnvConfig
from vedette_rl.errors import CannotRenderError, UnknownEnvironmentError, VideoError
from vedette_rl.evaluation.video import EpisodeVideo, check_video_path, write_video


class Counting(gym.Env[Any, Any]):
    """Shows how many steps were played; an episode has four."""

    observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.t = 0

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t == 4, False, {}

    def render(self) -> Any:
        return np.full((8, 8, 3), 50 * self.t, np.uint8)


class Grey(Counting):
    """Shows floats, as matplotlib has them, at a frame in four seconds."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 0.25}  # noqa: RUF012

    def render(self) -> Any:
        return np.full((8, 8, 3), 0.2 * self.t, np.float32)


class Bright(Counting):
    """Shows floats up to 255."""

    def render(self) -> Any:
        return np.full((8, 8, 3), 50.0 * self.t)


class Blind(Counting):
    """Shows nothing."""

    def render(self) -> Any:
        return None


class Drawn(Counting):
    """Has the word, and nothing behind it."""

    def render(self) -> Any:
        raise NotImplementedError


class Deaf(Counting):
    """Takes no render_mode."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()


class Still:
    def sync_model(self, model: ModelInfo) -> None:
        """It has none."""

    def act(self, obs: Columns, *, explore: bool) -> Any:
        assert not explore
        return np.zeros(len(obs["obs"]), np.int64)


def film_of(kind: type[gym.Env[Any, Any]]) -> EpisodeVideo:
    name = f"Film{kind.__name__}-v0"
    if name not in gym.registry:
        gym.register(name, kind)
    return EpisodeVideo(EnvConfig(id=name), seed=0)


def test_a_video_shows_the_episode_from_its_first_picture_to_its_last(tmp_path: Path) -> None:
    film = film_of(Counting)
    frames = list(film.frames(Still()))
    assert [int(frame[0, 0, 0]) for frame in frames] == [0, 50, 100, 150, 200]
    assert film.fps == 10
    assert len(list(film.frames(Still(), most=2))) == 2
    gif = tmp_path / "a.gif"
    assert write_video(gif, film.frames(Still()), film.fps) == 5
    film.close()
    with Image.open(gif) as written:
        assert written.n_frames == 5
        assert written.info["duration"] == 100


def test_pictures_of_floats_are_from_0_to_1_and_others_are_refused(tmp_path: Path) -> None:
    film = film_of(Grey)
    assert [int(frame[0, 0, 0]) for frame in film.frames(Still())] == [0, 51, 102, 153, 204]
    assert write_video(tmp_path / "slow.gif", film.frames(Still()), film.fps) == 5
    with Image.open(tmp_path / "slow.gif") as written:
        assert written.info["duration"] == 1000
    with pytest.raises(CannotRenderError, match="gave numbers outside of 0 to 1 as floats"):
        list(film_of(Bright).frames(Still()))


def test_recording_a_video_needs_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    monkeypatch.delenv("SDL_AUDIODRIVER", raising=False)
    film_of(Counting).close()
    assert os.environ["SDL_VIDEODRIVER"] == "dummy"  # else pygame complains where there is none
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    film_of(Counting).close()
    assert os.environ["SDL_VIDEODRIVER"] == "x11"


def test_an_environment_without_pictures_is_said() -> None:
    fix = r"; let its constructor take render_mode, .* name 'rgb_array', and its render\(\) give"
    with pytest.raises(CannotRenderError, match=rf"its render\(\) gave no picture{fix}"):
        list(film_of(Blind).frames(Still()))
    with pytest.raises(CannotRenderError, match=rf"it has no render\(\){fix}"):
        list(film_of(Drawn).frames(Still()))


def test_a_constructor_without_a_render_mode_is_said_and_not_blamed_on_the_users_kwargs() -> None:
    with pytest.raises(CannotRenderError, match=r"'FilmDeaf-v0' cannot render: its constructor"):
        film_of(Deaf)
    with pytest.raises(UnknownEnvironmentError, match=r"takes no speed: leave env.kwargs.speed"):
        EpisodeVideo(EnvConfig(id="FilmDeaf-v0", kwargs={"speed": 3}), seed=0)


def test_a_renderer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    film = EpisodeVideo(EnvConfig(id="CartPole-v1"), seed=1)
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(VideoError, match=r"CartPole-v1.*pip install 'vedette\[video\]'"):
        list(film.frames(Still()))
    film.close()


def test_a_video_is_written_as_mp4_too(tmp_path: Path) -> None:
    film = EpisodeVideo(EnvConfig(id="CartPole-v1"), seed=1)
    mp4 = tmp_path / "a.mp4"
    assert write_video(mp4, film.frames(Still()), film.fps) > 5
    film.close()
    assert b"ftyp" in mp4.read_bytes()[:16]


def test_a_video_that_cannot_be_written_is_refused_before_it_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(VideoError, match=r"named \.gif or \.mp4"):
        check_video_path(tmp_path / "a.png")
    with pytest.raises(VideoError, match="in a folder that exists"):
        check_video_path(tmp_path / "none" / "a.gif")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(VideoError, match=r"pip install 'vedette\[video\]', or name it .gif"):
        check_video_path(tmp_path / "a.mp4")
