"""LeRobotDatasets v3: their steps, pictures and films as episodes, and what is refused."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from configurations import configured
from numpy.typing import NDArray
from starts import prepared  # of tests/support

from vedette_rl.datasets.lerobot import LeRobotData, is_lerobot
from vedette_rl.envs.make import environment_spaces
from vedette_rl.errors import DataSetError
from vedette_rl.replay.ring import RingReader
from vedette_services.config import RunConfig
from vedette_services.errors import SettingError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.sources import check_sources, read_record, source_directory

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

FPS = 10
LENGTHS = (5, 3, 4)
ENDS = (True, False, True)  # whether the last step says next.done
SEEN = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
MOVES = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
FRONT = (48, 64, 3)


def shade(episode: int, step: int) -> int:
    """The brightness of the picture of a step: far enough apart to survive a film's coding."""
    return 20 + 60 * episode + 12 * step


def write_film(path: Path, lengths: tuple[int, ...] = LENGTHS) -> None:
    av = pytest.importorskip("av")
    path.parent.mkdir(parents=True)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=Fraction(FPS))
        stream.height, stream.width, stream.pix_fmt = *FRONT[:2], "yuv420p"
        for episode, length in enumerate(lengths):
            for step in range(length):
                picture = np.full(FRONT, shade(episode, step), np.uint8)
                file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode(None))


def write_lerobot(root: Path, pictures: str = "", **instead: Any) -> Path:
    """Write a data set of `LENGTHS` steps, as `lerobot` lays it out: episodes 0 and 1 in one file
    of data, 2 in another."""
    (root / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    number: dict[str, Any] = {"dtype": "float32", "names": None}
    features: dict[str, Any] = {
        "observation.state": {**number, "shape": [2]},
        "action": {**number, "shape": [3]},
        "next.reward": {**number, "shape": [1]},
        "next.done": {"dtype": "bool", "shape": [1], "names": None},
        **{n: {"dtype": "int64", "shape": [1]} for n in ("episode_index", "frame_index", "index")},
    }
    if pictures:
        features["observation.front"] = {"dtype": pictures, "shape": list(FRONT)}
    video = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    info = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "total_episodes": len(LENGTHS),
        "total_frames": sum(LENGTHS),
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": video if pictures == "video" else None,
        "features": features,
    }
    (root / "meta" / "info.json").write_text(json.dumps({**info, **instead}))
    begins = np.cumsum([0, *LENGTHS])
    rows = []
    for episode, length in enumerate(LENGTHS):
        row = {
            "episode_index": episode,
            "length": length,
            "data/chunk_index": 0,
            "data/file_index": int(episode == 2),
            "dataset_from_index": int(begins[episode]),
            "dataset_to_index": int(begins[episode + 1]),
            "tasks": ["walk"],
        }
        if pictures == "video":
            film = "videos/observation.front/"
            row |= {f"{film}chunk_index": 0, f"{film}file_index": 0}
            row |= {f"{film}from_timestamp": begins[episode] / FPS}
        rows.append(row)
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    (root / "data" / "chunk-000").mkdir(parents=True)
    for file, episodes in enumerate(((0, 1), (2,))):
        table = pa.Table.from_pylist([row for e in episodes for row in steps_of(e, pictures)])
        pq.write_table(table, root / "data" / "chunk-000" / f"file-{file:03d}.parquet")
    if pictures == "video":
        write_film(root / video.format(video_key="observation.front", chunk_index=0, file_index=0))
    return root


def steps_of(episode: int, pictures: str) -> list[dict[str, Any]]:
    length = LENGTHS[episode]
    found = []
    for t in range(length):
        row: dict[str, Any] = {
            "episode_index": episode,
            "frame_index": t,
            "observation.state": np.float32([episode, t]),
            "action": np.float32([t / 10, 0.0, -1.0]),
            "next.reward": np.float32(t + 1),
            "next.done": ENDS[episode] and t == length - 1,
        }
        if pictures == "image":
            image = pytest.importorskip("PIL.Image")
            data = io.BytesIO()
            image.fromarray(np.full(FRONT, shade(episode, t), np.uint8)).save(data, "png")
            row["observation.front"] = {"bytes": data.getvalue(), "path": None}
        found.append(row)
    return found


def test_steps_are_episodes_whose_last_one_without_a_successor_is_left_out(tmp_path: Path) -> None:
    data = LeRobotData(str(write_lerobot(tmp_path / "set")), SEEN, MOVES)
    assert data.length == sum(LENGTHS)
    found = list(data.episodes())
    assert [len(episode) for episode in found] == [5, 2, 4]
    assert [(e.terminated, e.truncated) for e in found] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    for episode in found:
        steps = len(episode)
        seen = np.minimum(np.arange(steps + 1), LENGTHS[episode.number] - 1)
        np.testing.assert_array_equal(episode.obs["obs"][:, 1], seen)
        assert (episode.obs["obs"][:, 0] == episode.number).all()
        np.testing.assert_array_equal(episode.reward, np.arange(steps) + 1.0)
        np.testing.assert_allclose(episode.action[:, 0], np.arange(steps) / 10)


@pytest.mark.parametrize("first", ["last", "first"])
@pytest.mark.parametrize("pictures", ["image", "video"])
def test_pictures_and_films_are_parts_of_the_observation(
    tmp_path: Path, pictures: str, first: str
) -> None:
    shape = FRONT if first == "last" else (3, *FRONT[:2])
    front = gym.spaces.Box(0, 255, shape, np.uint8)
    space = gym.spaces.Dict({"front": front, "state": SEEN})
    data = LeRobotData(str(write_lerobot(tmp_path / "set", pictures)), space, MOVES)
    for episode in (*data.episodes(), *data.episodes()):  # a film is begun anew
        seen = episode.obs["obs/front"]
        assert seen.shape == (len(episode) + 1, *shape)
        steps = np.minimum(np.arange(len(seen)), LENGTHS[episode.number] - 1)
        shades = np.array([shade(episode.number, t) for t in steps])
        assert (np.abs(seen.reshape(len(seen), -1).mean(1) - shades) < 5).all()
        np.testing.assert_array_equal(episode.obs["obs/state"][:, 1], steps)


def test_observations_are_stacked_as_the_environments(tmp_path: Path) -> None:
    stacked = gym.spaces.Box(-np.inf, np.inf, (3, 2), np.float32)
    data = LeRobotData(str(write_lerobot(tmp_path / "set")), stacked, MOVES, stack=3)
    first = next(iter(data.episodes()))
    assert first.obs["obs"][:3, :, 1].tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2]]


def test_features_of_other_names_are_read_by_rename(tmp_path: Path) -> None:
    root = str(write_lerobot(tmp_path / "set"))
    space = gym.spaces.Dict({"pose": SEEN})
    with pytest.raises(DataSetError) as found:
        LeRobotData(root, space, MOVES)
    assert found.value.fix == "name the feature by rename = { FEATURE = 'obs/pose' } of this source"
    for ours in ("pose", "obs/pose"):
        data = LeRobotData(root, space, MOVES, rename={"observation.state": ours})
        plain = LeRobotData(root, SEEN, MOVES)
        for mine, theirs in zip(data.episodes(), plain.episodes(), strict=True):
            assert mine.obs["obs/pose"].tolist() == theirs.obs["obs"].tolist()
        assert data.left_out == 1


def source_of(data: Path, bound: float = 1.0) -> RunConfig:
    """A run with the data set as its source, and actions of a Box of ±`bound`."""
    env = {
        "id": "no_such_module:Robot",
        "observation": {"space": "box", "shape": [2]},
        "action": {"space": "box", "shape": [3], "low": -bound, "high": bound},
    }
    table = {"env": env, "replay": {"sources": {"demos": {"data": str(data)}}}}
    settings = ["agent.n_step=1", "replay.capacity=1000"]
    return configured(*settings, table=table, agent="sac")


def test_actions_may_be_outside_the_bounds_by_ten_times_their_width(tmp_path: Path) -> None:
    data = write_lerobot(tmp_path / "set")
    config = source_of(data, bound=0.5)
    spaces = environment_spaces(config.env)
    lines = check_sources(config, tmp_path / "run", spaces, new=False).lines
    assert (
        "100 % of its actions are outside the action space's bounds, one as far as -1" in lines[1]
    )
    config = source_of(data, bound=0.04)
    with pytest.raises(SettingError, match=r"'action': -1.0 at \[2\] is outside -0.8399"):
        check_sources(config, tmp_path / "run", environment_spaces(config.env), new=False)


def test_it_is_a_source_of_a_run(tmp_path: Path) -> None:
    data = write_lerobot(tmp_path / "set")
    config = source_of(data)
    check_sources(config, tmp_path / "run", environment_spaces(config.env), new=False)
    run = RunDirectory(tmp_path / "run")
    run.make()
    prepared(config, run, new_replay=False)
    record = read_record(source_directory(config, run.root, "demos"))
    assert record is not None
    assert (record.rows, record.episodes, len(record.files)) == (11, 3, 4)
    rows = RingReader(source_directory(config, run.root, "demos")).columns
    assert rows["terminated"][:11].sum() == 2
    (data / "data" / "chunk-000" / "file-001.parquet").unlink()
    with pytest.raises(SettingError, match="is not what the run"):
        check_sources(config, run.root, environment_spaces(config.env), new=False)


# Refused


def refusal(root: Path, seen: gym.Space[Any] = SEEN, moves: gym.Space[Any] = MOVES) -> str:
    with pytest.raises(DataSetError) as found:
        list(LeRobotData(str(root), seen, moves).episodes())
    assert "\n" not in str(found.value)
    assert found.value.fix
    return str(found.value)


def test_other_versions_features_and_spaces_are_refused(tmp_path: Path) -> None:
    old = write_lerobot(tmp_path / "old", codebase_version="v2.1")
    assert is_lerobot(old)
    assert "a LeRobotDataset of version v2.1, not v3" in refusal(old)
    whole = write_lerobot(tmp_path / "set")
    other = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
    assert "observation.state (2,)" in refusal(whole, seen=other)
    assert "its actions are float32 (3,)" in refusal(whole, moves=other)
    features = json.loads((whole / "meta" / "info.json").read_text())["features"]
    del features["next.reward"]
    imitation = write_lerobot(tmp_path / "none", features=features)
    assert "it has no feature 'next.reward'" in refusal(imitation)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize(
    "part",
    [
        "meta/info.json",
        "meta/episodes/chunk-000/file-000.parquet",
        "data/chunk-000/file-001.parquet",
        "videos/observation.front/chunk-000/file-000.mp4",
    ],
)
@pytest.mark.parametrize("harm", [torn, Path.unlink])
def test_a_torn_data_set_is_refused(tmp_path: Path, part: str, harm: Any) -> None:
    space = gym.spaces.Dict({"front": gym.spaces.Box(0, 255, FRONT, np.uint8), "state": SEEN})
    root = write_lerobot(tmp_path / "set", "video")
    harm(root / part)
    assert "it cannot be read" in refusal(root, space)


def test_a_film_that_is_too_short_is_refused(tmp_path: Path) -> None:
    space = gym.spaces.Dict({"front": gym.spaces.Box(0, 255, FRONT, np.uint8), "state": SEEN})
    root = write_lerobot(tmp_path / "set", "video")
    film = root / "videos/observation.front/chunk-000/file-000.mp4"
    film.unlink()
    film.parent.rmdir()
    write_film(film, (5, 2))
    assert "file-000.mp4: frames 5 to 8 are not there" in refusal(root, space)


def test_an_end_in_the_midst_of_an_episode_is_refused(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "set")
    path = root / "data" / "chunk-000" / "file-000.parquet"
    table = pq.read_table(path)
    done: NDArray[Any] = np.zeros(len(table), np.bool_)
    done[1] = True
    at = table.column_names.index("next.done")
    pq.write_table(table.set_column(at, "next.done", pa.array(done)), path)
    assert "episode 0: step 1 of 5 has next.done, and it goes on" in refusal(root)


@pytest.mark.parametrize(("missing", "pictures"), [("pyarrow", ""), ("av", "video")])
def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, pictures: str
) -> None:
    from importlib.util import find_spec

    root = write_lerobot(tmp_path / "set", pictures)
    space = gym.spaces.Dict({"front": gym.spaces.Box(0, 255, FRONT, np.uint8), "state": SEEN})
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == missing else find_spec(name)
    )
    said = refusal(root, space if pictures else SEEN)
    assert missing in said
    assert "pip install 'vedette[lerobot]'" in said
