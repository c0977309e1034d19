"""Reads files of columns by D4RL's names (https://github.com/Farama-Foundation/D4RL): episodes, one
after the other, with the environment's own actions and rewards.

An episode ends where ``terminals`` or ``timeouts`` say so, and where ``next_observations`` is not
what the following row saw. Without ``next_observations`` the successor of a step is the following
row's observation; that of an episode's last step is not there: an episode that terminated does not
need it, of any other the last step is left out. ``timeouts`` that are never true, of a file whose
last row does not terminate, say nothing of where episodes were cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns
from vedette_rl.core.columns import row_dtype
from vedette_rl.datasets.cast_rows import CastRows
from vedette_rl.datasets.column_files import FileRows
from vedette_rl.datasets.data_sets import (
    COLUMNS_PAGE,
    RecordedEpisode,
    check_columns,
    stack_newest,
    unfollowed,
)
from vedette_rl.envs.spaces import action_field, observation_columns
from vedette_rl.errors import DataSetError

NAMES = MappingProxyType(
    {
        "observations": "obs",
        "actions": "action",
        "rewards": "reward",
        "next_observations": "next_obs",
        "terminals": "terminated",
        "timeouts": "truncated",
    }
)
"""Our columns by D4RL's names."""

_THEIRS = {ours: theirs for theirs, ours in NAMES.items()}
_KNOWN = frozenset((*NAMES, *_THEIRS))


def has_d4rl_names(names: Mapping[str, Any]) -> bool:
    """Return True if columns have D4RL's names, and not ours."""
    heads = {name.partition("/")[0] for name in names}
    return not heads & {"obs", "action"} and bool(heads & {"observations", "actions"})


def _ours(name: str) -> str:
    head, slash, rest = name.partition("/")
    return f"{NAMES.get(head, head)}{slash}{rest}"


def _theirs(name: str) -> str:
    head, slash, rest = name.partition("/")
    return f"{_THEIRS.get(head, head)}{slash}{rest}"


class D4rlData:
    """Episodes of a file of columns by D4RL's names.

    Args:
        name: the data set's name, as the user gave it.
        columns: as `vedette_rl.datasets.column_files.read_column_file` returns them, by D4RL's
            names or, where they were renamed, ours; others are not read.
        observation: the space of the environment that is trained on, after all wrappers.
        action: its space of actions, as the environment names them.
        stack: frames of an observation, where `env.frame_stack` stacks them; else 0.

    Raises:
        DataSetError: columns are missing or of another form, or nothing says where episodes end.
    """

    def __init__(
        self,
        name: str,
        columns: Mapping[str, NDArray[Any]],
        observation: gym.Space[Any],
        action: gym.Space[Any],
        stack: int = 0,
    ) -> None:
        self.name = name
        self.left_out = 0
        """Steps that the last reading of all episodes has left out."""
        known = {_ours(key): c for key, c in columns.items() if key.partition("/")[0] in _KNOWN}
        self._leaves = observation_columns(observation)
        self._stack = stack
        fields = [
            (leaf.name, leaf.dtype, leaf.shape[1:] if stack else leaf.shape)
            for leaf in self._leaves
        ]
        flag = np.dtype(np.bool_)
        row = row_dtype(
            [
                *fields,
                action_field(action),
                ("reward", np.dtype(np.float64), ()),
                *((f"next_{leaf}", dtype, shape) for leaf, dtype, shape in fields),
                ("terminated", flag, ()),
                ("truncated", flag, ()),
            ]
        )
        next_names = {f"next_{leaf.name}" for leaf in self._leaves}
        found = np.dtype([(key, c.dtype, c.shape[1:]) for key, c in known.items() if c.shape])
        check_columns(name, found, row, next_names | {"truncated"}, _theirs)
        self._has_next = next_names <= known.keys()
        if not self._has_next and "truncated" not in known:
            why = "it has neither 'timeouts' nor 'next_observations': where episodes end is unknown"
            raise DataSetError(name, why, f"add one of them ({COLUMNS_PAGE})")
        self._rows = CastRows(name, FileRows(name, known), row)
        self._start: Any = getattr(action, "start", 0)
        self._action_dtype = action_field(action)[1]
        self.length = len(self._rows)
        if not self._has_next and self._hides_cuts():
            why = (
                "its 'timeouts' are never true, it has no 'next_observations', and its last row "
                "does not terminate: where episodes are cut is unknown"
            )
            fix = f"add 'next_observations', or set the 'timeouts' of cut episodes ({COLUMNS_PAGE})"
            raise DataSetError(name, why, fix)

    def _hides_cuts(self) -> bool:
        """True if its last episode is cut, and nothing says so, as of those before perhaps."""
        if not self.length or self._rows.column("truncated").any():
            return False
        return not self._rows.take("terminated", np.array([self.length - 1]))[0]

    def episodes(self) -> Iterator[RecordedEpisode]:
        """Its episodes, read one at a time.

        Raises:
            DataSetError: a number is none of its column's dtype.
        """
        self.left_out = 0
        terminated = self._rows.column("terminated")
        truncated = np.zeros(self.length, np.bool_)
        if "truncated" in self._rows.names:
            truncated = self._rows.column("truncated")
        breaks = np.zeros(self.length, np.bool_)
        breaks[-1:] = True
        if self._has_next:
            breaks = unfollowed(self._rows, [leaf.name for leaf in self._leaves])
        last_rows = np.flatnonzero(terminated | truncated | breaks).tolist()
        first = number = 0
        for last in last_rows:
            episode = self._episode(number, first, last, terminated=bool(terminated[last]))
            first = last + 1
            if episode is not None:
                yield episode
                number += 1

    def _episode(
        self, number: int, first: int, last: int, *, terminated: bool
    ) -> RecordedEpisode | None:
        """The episode of these rows; None of a single step whose successor is unknown."""
        kept = last + 1 if terminated or self._has_next else last
        self.left_out += last + 1 - kept
        if kept == first:
            return None
        rows = np.arange(first, kept)
        obs: Columns = {}
        for leaf in self._leaves:
            # What a terminated episode came to is not used.
            final = self._rows.take(leaf.name, np.array([min(kept, last)]))
            if self._has_next:
                final = self._rows.take(f"next_{leaf.name}", rows[-1:])
            seen = np.concatenate([self._rows.take(leaf.name, rows), final])
            obs[leaf.name] = stack_newest(seen, self._stack)
        action = self._rows.take("action", rows) - self._start
        return RecordedEpisode(
            number,
            obs,
            action.astype(self._action_dtype),
            self._rows.take("reward", rows),
            terminated,
            not terminated,
        )
