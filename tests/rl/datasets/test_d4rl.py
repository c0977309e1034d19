"""Files of columns by D4RL's names: their episodes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from vedette_rl.datasets.column_files import read_column_file
from vedette_rl.datasets.d4rl import D4rlData, has_d4rl_names
from vedette_rl.errors import DataSetError

SEEN = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
MOVES = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
LENGTHS = (3, 4, 2)
ENDS = ("terminal", "timeout", "")  # the last one is cut by the end of the file


def columns(*, successors: bool = False, **instead: NDArray[Any] | None) -> dict[str, Any]:
    """Three episodes whose observations are (episode, step)."""
    obs, after, terminals, timeouts = [], [], [], []
    for episode, (length, end) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        for step in range(length):
            obs.append((episode, step))
            after.append((episode, step + 1))
            terminals.append(end == "terminal" and step == length - 1)
            timeouts.append(end == "timeout" and step == length - 1)
    made: dict[str, Any] = {
        "observations": np.array(obs, np.float32),
        "actions": np.linspace(-1, 1, len(obs), dtype=np.float32)[:, None],
        "rewards": np.arange(len(obs), dtype=np.float32),
        "terminals": np.array(terminals),
        "timeouts": np.array(timeouts),
    }
    if successors:
        made["next_observations"] = np.array(after, np.float32)
    return {name: column for name, column in {**made, **instead}.items() if column is not None}


def write_hdf5(path: Path, stored: dict[str, Any], **options: Any) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, column in stored.items():
            file.create_dataset(name, data=column, **options)
        file["metadata/algorithm"] = b"random"
        file["infos/qpos"] = np.zeros((5, 3))
    return path


def opened(stored: dict[str, Any], seen: gym.Space[Any] = SEEN, stack: int = 0) -> D4rlData:
    return D4rlData("demos", stored, seen, MOVES, stack)


@pytest.mark.parametrize("form", ["npz", "hdf5", "compressed"])
def test_its_columns_are_read_from_npz_and_hdf5(tmp_path: Path, form: str) -> None:
    if form == "npz":
        np.savez(tmp_path / "set", **columns())
        stored = read_column_file(tmp_path / "set.npz")
    else:
        options = {"compression": "gzip"} if form == "compressed" else {}
        stored = read_column_file(write_hdf5(tmp_path / "set.hdf5", columns(), **options))
    assert stored.keys() == columns().keys()
    assert has_d4rl_names(stored)
    found = list(opened(stored).episodes())
    assert [episode.reward.tolist() for episode in found] == [[0, 1, 2], [3, 4, 5], [7]]


def test_a_step_whose_successor_is_not_recorded_is_left_out() -> None:
    data = opened(columns())
    terminated, cut, last = data.episodes()
    assert terminated.obs["obs"].tolist() == [[0, 0], [0, 1], [0, 2], [0, 2]]
    assert (terminated.terminated, terminated.truncated) == (True, False)
    assert cut.obs["obs"].tolist() == [[1, 0], [1, 1], [1, 2], [1, 3]]
    assert (cut.terminated, cut.truncated, len(cut)) == (False, True, 3)
    assert (len(last), data.left_out, data.length) == (1, 2, 9)


def test_next_observations_keep_the_last_steps_and_say_where_episodes_end() -> None:
    data = opened(columns(successors=True, timeouts=None))
    found = list(data.episodes())
    assert [len(episode) for episode in found] == [3, 4, 2]
    assert [episode.obs["obs"][-1].tolist() for episode in found] == [[0, 3], [1, 4], [2, 2]]
    assert [episode.terminated for episode in found] == [True, False, False]
    assert data.left_out == 0


def test_numbers_of_other_dtypes_are_taken_where_they_are_the_same_numbers() -> None:
    whole = columns()
    other = columns(
        observations=whole["observations"].astype(np.float64),
        terminals=whole["terminals"].astype(np.float32),
        timeouts=whole["timeouts"].astype(np.int64),
        rewards=whole["rewards"].astype(np.int64),
    )
    for mine, theirs in zip(opened(whole).episodes(), opened(other).episodes(), strict=True):
        assert mine.obs["obs"].tolist() == theirs.obs["obs"].tolist()
        assert mine.reward.tolist() == theirs.reward.tolist()
        assert mine.terminated == theirs.terminated
    half = columns(terminals=np.full(9, 0.5))
    with pytest.raises(
        DataSetError, match=r"sample 0: column 'terminated' has 0\.5, which is no bool"
    ):
        list(opened(half).episodes())


def test_observations_are_stacked_and_taken_apart_as_the_space_says() -> None:
    stacked = gym.spaces.Box(-np.inf, np.inf, (3, 2), np.float32)
    first = next(iter(opened(columns(), stacked, stack=3).episodes()))
    assert first.obs["obs"][2, :, 1].tolist() == [0, 1, 2]
    parts = gym.spaces.Dict({"where": SEEN})
    stored = columns(observations=None, **{"observations/where": columns()["observations"]})
    assert next(iter(opened(stored, parts).episodes())).obs["obs/where"].shape == (4, 2)


def test_all_that_is_missing_or_wrong_is_named_at_once_in_its_names() -> None:
    stored = columns(rewards=None, terminals=None, actions=np.zeros((9, 2), np.float32))
    with pytest.raises(DataSetError) as found:
        opened(stored)
    said = str(found.value)
    assert "no columns 'rewards', 'terminals' (it has 'observations', 'actions'" in said
    assert "its column 'actions' is float32 (N, 2), and the environment's is float32 (N, 1)" in said
    assert "docs/how-to/start-from-demonstrations.md" in said


def test_it_is_refused_where_nothing_says_where_episodes_end() -> None:
    with pytest.raises(DataSetError, match="neither 'timeouts' nor 'next_observations'"):
        opened(columns(timeouts=None))


def test_timeouts_that_are_never_true_say_nothing_of_an_episode_that_is_cut() -> None:
    never = np.zeros(9, bool)
    with pytest.raises(DataSetError, match=r"'timeouts' are never true, .* where episodes are cut"):
        opened(columns(timeouts=never))
    kept = opened(columns(successors=True, timeouts=never)).episodes()
    assert [len(episode) for episode in kept] == [3, 4, 2]
    ends = np.isin(np.arange(9), [2, 6, 8])  # all episodes terminate: none needs a timeout
    whole = opened(columns(timeouts=never, terminals=ends)).episodes()
    assert [len(episode) for episode in whole] == [3, 4, 2]


def test_a_link_to_another_file_is_not_followed(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    other = write_hdf5(tmp_path / "other.hdf5", columns())
    path = write_hdf5(tmp_path / "set.hdf5", columns(rewards=None))
    with h5py.File(path, "a") as file:
        file["rewards"] = h5py.ExternalLink(str(other), "rewards")
    assert "rewards" not in read_column_file(path)
