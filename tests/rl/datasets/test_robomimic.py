"""robomimic's HDF5 files: their episodes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.datasets.robomimic import RobomimicData, is_robomimic
from vedette_rl.errors import DataSetError

h5py = pytest.importorskip("h5py")

STATE = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
FRONT = gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)
MOVES = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
DONES = ([0, 0, 1, 1], [0, 0, 0])
"""Of each episode: one that succeeds, and one that does not end."""


def write_robomimic(path: Path, *, successors: bool = False, without: str = "") -> Path:
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for number, dones in enumerate(DONES):
            steps = len(dones)
            demo = data.create_group(f"demo_{10 * number}")  # 10 comes after 0, and before 2
            state = np.stack([np.full(steps, number), np.arange(steps)], 1).astype(np.float64)
            demo["obs/state"] = state
            demo["obs/front_image"] = np.full((steps, 4, 4, 3), 7, np.uint8)
            demo["actions"] = np.full((steps, 3), 0.5)
            demo["rewards"] = np.array(dones, np.float64)
            demo["dones"] = np.array(dones, np.int64)
            if successors:
                demo["next_obs/state"] = state + np.array([0, 1])
            if without in demo:
                del demo[without]
        file["mask/train"] = np.array([b"demo_0"])
    return path


def test_episodes_end_with_the_first_step_that_is_done(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "set.hdf5")
    assert is_robomimic(path)
    data = RobomimicData(str(path), STATE, MOVES)
    success, cut = data.episodes()
    assert success.obs["obs"].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]
    assert (success.reward.tolist(), success.terminated) == ([0, 0, 1], True)
    assert cut.obs["obs"].tolist() == [[1, 0], [1, 1], [1, 2]]
    assert (len(cut), cut.truncated, cut.action.dtype) == (2, True, np.float32)
    assert (data.length, data.left_out) == (7, 2)


def test_next_obs_keeps_the_last_step_of_an_episode_without_an_end(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "set.hdf5", successors=True)
    data = RobomimicData(str(path), STATE, MOVES)
    success, cut = data.episodes()
    assert (len(success), success.obs["obs"][-1].tolist()) == (3, [0, 3])
    assert (len(cut), cut.obs["obs"][-1].tolist()) == (3, [1, 3])
    assert data.left_out == 1


def test_parts_have_its_names_or_those_of_rename(tmp_path: Path) -> None:
    path = str(write_robomimic(tmp_path / "set.hdf5"))
    space = gym.spaces.Dict({"front": FRONT, "state": STATE})
    with pytest.raises(DataSetError) as found:
        RobomimicData(path, space, MOVES)
    assert "no column 'obs/front' (it has 'obs/front_image', 'obs/state'" in str(found.value)
    assert "replay.sources.NAME.rename" in found.value.fix
    for rename in ({"front_image": "front"}, {"obs/front_image": "obs/front"}):
        first = next(iter(RobomimicData(path, space, MOVES, rename=rename).episodes()))
        assert {name: c.shape for name, c in first.obs.items()} == {
            "obs/front": (4, 4, 4, 3),
            "obs/state": (4, 2),
        }


def test_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    path = str(write_robomimic(tmp_path / "set.hdf5", without="rewards"))
    other = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    with pytest.raises(DataSetError) as found:
        RobomimicData(path, STATE, other)
    assert "it has no column 'rewards'" in str(found.value)
    assert "its column 'actions' is float64 (N, 3)" in str(found.value)


def test_what_is_torn_or_none_of_its_files_is_said(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "set.hdf5")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataSetError, match="it cannot be read"):
        is_robomimic(path)
    np.savez(tmp_path / "set.npz", reward=np.zeros(3))
    assert not is_robomimic(tmp_path / "set.npz")


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.util import find_spec

    path = write_robomimic(tmp_path / "set.hdf5")
    lacks: Any = lambda name: None if name == "h5py" else find_spec(name)  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", lacks)
    with pytest.raises(DataSetError, match=r"pip install 'vedette\[minari\]'"):
        is_robomimic(path)
