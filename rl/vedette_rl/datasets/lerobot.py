"""Reads a LeRobotDataset v3 on disk (https://github.com/huggingface/lerobot): needs the lerobot
extra.

A row of it is a step: what was seen before the action (``observation.KEY``), the ``action``, and
``next.reward`` and ``next.done`` after it. The observation after an episode's last action is not
there: an episode that terminated does not need it; of any other the last step is left out.
"""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns
from vedette_rl.core.exact_cast import cast_exactly, may_be_cast
from vedette_rl.datasets.data_sets import COLUMNS_PAGE, RecordedEpisode, stack_newest
from vedette_rl.datasets.renaming import Renaming
from vedette_rl.datasets.torn_data import reading_data
from vedette_rl.envs.spaces import ObservationColumn, action_field, observation_columns
from vedette_rl.errors import DataSetError

_INFO = Path("meta") / "info.json"
_EXTRA = "pip install 'vedette[lerobot]'"
_INTERVENTIONS = ("complementary_info.is_intervention", "is_intervention")
_FEATURES = {
    "action": "action",
    "reward": "next.reward",
    "terminated": "next.done",
    "truncated": "next.truncated",
}
"""LeRobot's names of our columns beside the observations."""


def is_lerobot(folder: Path) -> bool:
    """True if a folder is a LeRobotDataset of any version."""
    return (folder / _INFO).is_file()


class LeRobotData:
    """A LeRobotDataset on this host.

    Args:
        name: the folder of the data set, as the user gave it.
        observation: the space of the environment that is trained on, after all wrappers. A Box is
            the one feature ``observation.NAME`` of its shape; the part KEY of a dictionary is
            ``observation.KEY``. Images are as they are shown or with channels first.
        action: its space of actions, as the environment names them.
        stack: frames of an observation, where `env.frame_stack` stacks them; else 0.
        rename: our columns by its features: ``{"observation.images.front": "obs/front"}``.

    Raises:
        DataSetError: it is not of version 3, torn, or of other features.
    """

    def __init__(
        self,
        name: str,
        observation: gym.Space[Any],
        action: gym.Space[Any],
        stack: int = 0,
        rename: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.left_out = 0
        """Steps that the last reading of all episodes has left out."""
        self._root = Path(name)
        self._stack = stack
        if not importlib.util.find_spec("pyarrow"):
            raise DataSetError(name, "reading it needs pyarrow, which is not installed", _EXTRA)
        with reading_data(name):
            self._info = json.loads((self._root / _INFO).read_text("utf-8"))
            version = str(self._info.get("codebase_version", "none"))
            self._features: dict[str, Any] = self._info["features"]
            self.length = int(self._info["total_frames"])
            self._fps = Fraction(self._info["fps"])
        if not version.startswith("v3"):
            fix = "convert it: python -m lerobot.datasets.v30.convert_dataset_v21_to_v30"
            raise DataSetError(name, f"it is a LeRobotDataset of version {version}, not v3", fix)
        leaves = observation_columns(observation)
        self._renaming = Renaming(name, rename, [*(leaf.name for leaf in leaves), *_FEATURES])
        self._renaming.check(self._features)
        self._named = {
            ours: self._renaming.theirs(ours, usual) for ours, usual in _FEATURES.items()
        }
        self._of_leaf = [
            (leaf, self._feature_of(leaf, is_only=len(leaves) == 1)) for leaf in leaves
        ]
        self._action = action
        self._start = getattr(action, "start", 0)
        self._check_features()
        self._table: tuple[Path | None, Any] = None, None
        self._videos: dict[str, _Video] = {}

    def _feature_of(self, leaf: ObservationColumn, *, is_only: bool) -> str:
        """The feature that is a column of our observations."""
        usual = "observation." + ".".join(map(str, leaf.path)) if leaf.path else ""
        if (named := self._renaming.theirs(leaf.name, usual)) in self._features:
            return named
        seen = [name for name in self._features if name.split(".")[0] == "observation"]
        shape = leaf.shape[1:] if self._stack else leaf.shape
        fitting = [name for name in seen if self._fits(name, shape)]
        if is_only and not leaf.path and len(fitting) == 1:
            return fitting[0]
        told = ", ".join(f"{name} {self._shape(name)}" for name in seen) or "none"
        why = f"its observations are {told}; {leaf.name} is {shape}"
        fix = f"name the feature by rename = {{ FEATURE = '{leaf.name}' }} of this source"
        raise DataSetError(self.name, why, fix)

    def _shape(self, feature: str) -> tuple[int, ...]:
        return tuple(int(n) for n in self._features[feature]["shape"])

    def _is_image(self, feature: str) -> bool:
        return self._features[feature]["dtype"] in ("video", "image")

    def _fits(self, feature: str, shape: tuple[int, ...]) -> bool:
        feature_shape = self._shape(feature)
        if self._is_image(feature):
            return sorted(feature_shape) == sorted(shape)
        return feature_shape == shape or (feature_shape == (1,) and shape == ())

    def _check_features(self) -> None:
        """Check what is stored of each feature.

        Raises:
            DataSetError: names all that are missing, and all of another form.
        """
        needed = [self._named["action"], self._named["reward"]]
        missing = [repr(name) for name in needed if name not in self._features]
        wrong: list[str] = []
        if missing:
            wrong.append(f"it has no feature {' and no feature '.join(missing)}")
        for leaf, name in self._of_leaf:
            shape = leaf.shape[1:] if self._stack else leaf.shape
            dtype = "uint8" if self._is_image(name) else self._features[name]["dtype"]
            if not self._fits(name, shape) or not may_be_cast(np.dtype(dtype), leaf.dtype):
                ours = f"{leaf.name} is {leaf.dtype} {shape}"
                wrong.append(f"its {name} is {dtype} {self._shape(name)}, and {ours}")
        if not missing:
            wrong += self._wrong_actions()
        if wrong:
            fix = "name one that was recorded with rewards, or rename its features"
            if not missing:
                fix = "name a data set of this environment"
            raise DataSetError(self.name, ", ".join(wrong), f"{fix} ({COLUMNS_PAGE})")
        for _, name in self._of_leaf:
            needs = {"video": "av", "image": "PIL"}.get(self._features[name]["dtype"])
            if needs and not importlib.util.find_spec(needs):
                why = f"{name} is of {self._features[name]['dtype']}s, which needs {needs}"
                raise DataSetError(self.name, f"{why}; it is not installed", _EXTRA)

    def _wrong_actions(self) -> list[str]:
        _, _, shape = action_field(self._action)
        name = self._named["action"]
        stored = self._shape(name)
        of = self._features[name]["dtype"]
        if stored == (shape or (1,)) and np.dtype(of).kind in "biuf":
            return []
        return [f"its actions are {of} {stored}, and the environment's are {self._action}"]

    def episodes(self) -> Iterator[RecordedEpisode]:
        """Its episodes, read one at a time.

        Raises:
            DataSetError: one is torn, or has borders where none can be.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        number = 0
        self.left_out = 0
        try:
            with reading_data(self.name, pa.ArrowException):
                for file in sorted((self._root / "meta" / "episodes").rglob("*.parquet")):
                    for row in pq.read_table(file).to_pylist():
                        episode = self._episode(number, row)
                        number += 1
                        if episode is not None:
                            yield episode
                if number != (due := int(self._info["total_episodes"])):
                    raise ValueError(f"it has {number} episodes, and should have {due}")
        finally:
            for video in self._videos.values():
                video.close()
            self._videos = {}

    def _episode(self, number: int, row: dict[str, Any]) -> RecordedEpisode | None:
        """One episode; None of a single step that did not end it."""
        path = self._info["data_path"].format(
            chunk_index=row["data/chunk_index"], file_index=row["data/file_index"]
        )
        table = self._rows(self._root / path, row["episode_index"])
        steps = int(row["length"])
        if len(table) != steps:
            raise self._broken(number, f"it has {len(table)} rows, and should have {steps}")
        done = self._flags(table, number, self._named["terminated"])
        cut = self._flags(table, number, self._named["truncated"])
        terminated = bool(done[-1]) and not cut[-1]
        kept = steps if terminated else steps - 1  # the last one's successor was not recorded
        self.left_out += steps - kept
        if not kept:
            return None
        obs: Columns = {}
        for leaf, feature in self._of_leaf:
            seen = self._read_observations(table, row, feature, leaf)
            last = seen[-1:] if terminated else seen[:0]
            obs[leaf.name] = stack_newest(np.concatenate([seen, last]), self._stack)
        marked = next((name for name in _INTERVENTIONS if name in table.column_names), None)
        return RecordedEpisode(
            number,
            obs,
            self._actions(table)[:kept],
            _values(table, self._named["reward"], ())[:kept].astype(np.float64),
            terminated,
            not terminated,
            None
            if marked is None
            else cast_exactly(_values(table, marked, ())[:kept], np.dtype(np.bool_)),
        )

    def _rows(self, path: Path, episode: int) -> Any:  # a pyarrow.Table
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        if self._table[0] != path:
            self._table = path, pq.read_table(path)
        table = self._table[1]
        return table.filter(pc.equal(table["episode_index"], episode))

    def _flags(self, table: Any, number: int, name: str) -> NDArray[np.bool_]:
        if name not in table.column_names:
            return np.zeros(len(table), np.bool_)
        flags = cast_exactly(_values(table, name, ()), np.dtype(np.bool_))
        if flags[:-1].any():
            at = int(np.flatnonzero(flags)[0])
            raise self._broken(number, f"step {at} of {len(flags)} has {name}, and it goes on")
        return flags

    def _actions(self, table: Any) -> NDArray[Any]:
        """Actions as agents see them."""
        _, dtype, shape = action_field(self._action)
        stored = _values(table, self._named["action"], shape)
        return cast_exactly(stored - self._start, dtype)

    def _read_observations(
        self, table: Any, row: dict[str, Any], feature: str, leaf: ObservationColumn
    ) -> NDArray[Any]:
        """Return the observations before each step ``(T, *shape)``."""
        shape = leaf.shape[1:] if self._stack else leaf.shape
        if not self._is_image(feature):
            return cast_exactly(_values(table, feature, shape), leaf.dtype)
        if self._features[feature]["dtype"] == "image":
            images = [_picture(value["bytes"]) for value in table[feature].to_pylist()]
        else:
            path = self._info["video_path"].format(
                video_key=feature,
                chunk_index=row[f"videos/{feature}/chunk_index"],
                file_index=row[f"videos/{feature}/file_index"],
            )
            video = self._videos.get(feature)
            if video is None or video.path != self._root / path:
                if video is not None:
                    video.close()
                video = self._videos[feature] = _Video(self._root / path, self._fps)
            first = round(row[f"videos/{feature}/from_timestamp"] * self._fps)
            images = video.frames(first, len(table))
        frames: NDArray[Any] = np.stack(images)
        if frames.shape[1:] != shape:
            frames = frames.transpose(0, 3, 1, 2)  # channels first
        if frames.shape[1:] != shape:
            raise ValueError(f"{feature} has pictures of {images[0].shape}, not {shape}")
        return cast_exactly(frames, leaf.dtype)

    def _broken(self, number: int, why: str) -> DataSetError:
        return DataSetError(self.name, f"episode {number}: {why}", "repair it or leave it out")


class _Video:
    """A video file that is decoded in order, by the numbers of its frames."""

    def __init__(self, path: Path, fps: Fraction) -> None:
        self.path = path
        self._fps = fps
        self._open()

    def _open(self) -> None:
        import av

        try:
            self._file = av.open(str(self.path))
        except av.FFmpegError as e:
            raise ValueError(f"{self.path.name}: {e}") from e
        stream = self._file.streams.video[0]
        self._decoded = self._file.decode(stream)
        self._begin = stream.start_time or 0
        self._last = -1

    def frames(self, first: int, count: int) -> list[NDArray[np.uint8]]:
        """The frames [first, first + count), RGB.

        Raises:
            ValueError: they are not there.
        """
        import av

        if first <= self._last:  # behind what is decoded
            self.close()
            self._open()
        frames_read: list[NDArray[np.uint8]] = []
        try:
            while len(frames_read) < count:
                frame = next(self._decoded)
                if frame.pts is None or frame.time_base is None:
                    raise ValueError(f"{self.path.name}: a frame has no time")
                self._last = round((frame.pts - self._begin) * frame.time_base * self._fps)
                if self._last >= first:
                    frames_read.append(np.asarray(frame.to_ndarray(format="rgb24"), np.uint8))
        except (StopIteration, av.FFmpegError) as e:
            why = f"frames {first} to {first + count} are not there"
            raise ValueError(f"{self.path.name}: {why}") from e
        return frames_read

    def close(self) -> None:
        self._file.close()


def _picture(data: bytes) -> NDArray[Any]:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def _values(table: Any, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A column ``(T, *shape)`` of numbers, or of lists of them."""
    column = table[name].combine_chunks()
    while hasattr(column.type, "value_type"):
        column = column.flatten()
    if column.null_count:
        raise ValueError(f"{name} has no value in some rows")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False).reshape(len(table), *shape)
    return values
