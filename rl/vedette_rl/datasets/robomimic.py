"""Reads robomimic's HDF5 files (https://robomimic.github.io): needs h5py, which the minari extra
brings.

``data/demo_N`` is an episode: ``obs/KEY``, ``actions``, ``rewards``, ``dones``, and where it was
written ``next_obs/KEY``. It ends with its first step that is done: robomimic marks all steps of a
success. Without ``next_obs`` the last step of one that is never done is left out: what came after
it was not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns
from vedette_rl.core.exact_cast import InexactCastError, cast_exactly
from vedette_rl.datasets.column_files import is_hdf5, require_h5py
from vedette_rl.datasets.data_sets import (
    RecordedEpisode,
    check_columns,
    stack_newest,
)
from vedette_rl.datasets.renaming import Renaming
from vedette_rl.datasets.torn_data import reading_data
from vedette_rl.envs.spaces import ObservationColumn, action_field, observation_columns
from vedette_rl.errors import DataSetError

_Form = tuple[np.dtype[Any], tuple[int, ...]]
"""The dtype and shape of a step in a column."""

_FLOAT64 = np.dtype(np.float64)

_NAMES = {"action": "actions", "reward": "rewards", "terminated": "dones"}
"""robomimic's names of our columns beside the observations."""


def is_robomimic(path: Path) -> bool:
    """Return True if a file is one of robomimic's.

    Raises:
        DataSetError: it is HDF5 and torn, or h5py is not installed.
    """
    with reading_data(str(path)):
        if not is_hdf5(path):
            return False
        require_h5py(str(path))
        import h5py

        with h5py.File(path, "r") as file:
            data = file.get("data")
            return isinstance(data, h5py.Group) and bool(_episode_names(data))


class RobomimicData:
    """Episodes of a file of robomimic's.

    Args:
        name: the file, as the user gave it.
        observation: the space of the environment that is trained on, after all wrappers. A Box is
            the one ``obs/KEY`` of its shape, or ``obs/KEY`` that `rename` makes ``obs``; the part
            KEY of a dictionary is ``obs/KEY``.
        action: its space of actions, as the environment names them.
        stack: frames of an observation, where `env.frame_stack` stacks them; else 0.
        rename: our columns by its names.

    Raises:
        DataSetError: it is torn, or of other columns.
    """

    def __init__(
        self,
        name: str,
        observation: gym.Space[Any],
        action: gym.Space[Any],
        stack: int = 0,
        rename: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        import h5py

        self.name = name
        self.left_out = 0
        """Steps that the last reading of all episodes has left out."""
        self._stack = stack
        self._leaves = observation_columns(observation)
        self._action = action
        self._renaming = Renaming(name, rename, [*(leaf.name for leaf in self._leaves), *_NAMES])
        with reading_data(name), h5py.File(name, "r") as file:
            data = file["data"]
            names = _episode_names(data)
            found = _forms(data[names[0]])
            self._theirs = self._name_columns(found)
            self.length = sum(len(data[each].get(self._theirs["action"], ())) for each in names)
        fields = [(leaf.name, leaf.dtype, self._frame_shape(leaf)) for leaf in self._leaves]
        numbers = [("reward", _FLOAT64, ()), ("terminated", np.dtype(np.bool_), ())]
        ours = {ours: found[theirs] for ours, theirs in self._theirs.items() if theirs in found}
        others = {theirs: form for theirs, form in found.items() if theirs.startswith("obs/")}
        check_columns(
            name,
            np.dtype([*((key, *form) for key, form in {**others, **ours}.items())]),
            np.dtype([*fields, action_field(action), *numbers]),
            called=lambda column: self._theirs.get(column, column),
        )

    def _frame_shape(self, leaf: ObservationColumn) -> tuple[int, ...]:
        return leaf.shape[1:] if self._stack else leaf.shape

    def _name_columns(self, found: Mapping[str, _Form]) -> dict[str, str]:
        """Its names of our columns."""
        self._renaming.check(found)
        theirs = {ours: self._renaming.theirs(ours, usual) for ours, usual in _NAMES.items()}
        for leaf in self._leaves:
            usual = leaf.name
            if not leaf.path:
                shape = self._frame_shape(leaf)
                fitting = [
                    key for key in found if key.startswith("obs/") and found[key][1] == shape
                ]
                usual = fitting[0] if len(fitting) == 1 else usual
            theirs[leaf.name] = self._renaming.theirs(leaf.name, usual)
        return theirs

    def episodes(self) -> Iterator[RecordedEpisode]:
        """Its episodes, read one at a time.

        Raises:
            DataSetError: one is torn, or lacks a column.
        """
        import h5py

        self.left_out = 0
        with reading_data(self.name), h5py.File(self.name, "r") as file:
            data = file["data"]
            for number, name in enumerate(_episode_names(data)):
                episode = self._episode(number, name, data[name])
                if episode is not None:
                    yield episode

    def _episode(self, number: int, name: str, group: Any) -> RecordedEpisode | None:
        """One episode; None of a single step whose successor is unknown."""
        steps = len(group[self._theirs["action"]])
        flags = self._values(name, group, "terminated", steps)
        done = self._cast(name, "terminated", flags, np.dtype(np.bool_))
        terminated = bool(done.any())
        kept = int(np.argmax(done)) + 1 if terminated else steps
        has_next = "next_obs" in group
        if not terminated and not has_next:
            kept = max(0, steps - 1)
        self.left_out += steps - kept
        if not kept:
            return None
        obs: Columns = {}
        for leaf in self._leaves:
            stored = self._values(name, group, leaf.name, steps)
            seen = self._cast(name, leaf.name, stored, leaf.dtype)
            final = seen[min(kept, steps - 1)][None]  # a terminated one's is not used
            if has_next:
                after = f"next_{self._theirs[leaf.name]}"
                final = self._cast(name, leaf.name, group[after][kept - 1 : kept], leaf.dtype)
            obs[leaf.name] = stack_newest(np.concatenate([seen[:kept], final]), self._stack)
        start = getattr(self._action, "start", 0)
        action = self._values(name, group, "action", steps) - start
        action = self._cast(name, "action", action, action_field(self._action)[1])
        reward = self._cast(name, "reward", self._values(name, group, "reward", steps), _FLOAT64)
        return RecordedEpisode(
            number, obs, action[:kept], reward[:kept], terminated, not terminated
        )

    def _values(self, name: str, group: Any, ours: str, steps: int) -> NDArray[Any]:
        """A column of an episode as it is stored."""
        theirs = self._theirs[ours]
        values = np.asarray(group[theirs])
        if len(values) != steps:
            raise ValueError(f"{name} has {len(values)} of {theirs}, and {steps} steps")
        return values

    def _cast(
        self, name: str, ours: str, values: NDArray[Any], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        try:
            return cast_exactly(values, dtype)
        except InexactCastError as error:
            why = f"{name}: step {error.row}: its {self._theirs[ours]!r} has {error}"
            raise DataSetError(self.name, why, "repair it or leave it out") from error


def _episode_names(data: Any) -> list[str]:  # an h5py.Group
    """The episodes by their numbers."""
    numbers = {name: re.fullmatch(r"demo_(\d+)", name) for name in data}
    return sorted((name for name, found in numbers.items() if found), key=lambda n: int(n[5:]))


def _forms(group: Any) -> dict[str, _Form]:
    """The form of each column of an episode, those of groups by their path."""
    import h5py

    forms: dict[str, _Form] = {}

    def add(path: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape and path.partition("/")[0] != "next_obs":
            forms[path] = (item.dtype, item.shape[1:])

    group.visititems(add)
    return forms
