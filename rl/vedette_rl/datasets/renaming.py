"""Our names for what a data set calls otherwise: `replay.sources.NAME.rename`.

::

    renaming = Renaming("demos.npz", {"states": "obs"}, ours=("obs", "action", "reward"))
    columns = renaming.rename({"states": ..., "action": ..., "reward": ...})
    renaming.theirs("obs")                      # "states"
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vedette_rl.errors import DataSetError
from vedette_rl.replay.export import StoredRows

_OBS = "obs/"

T = TypeVar("T")


class Renaming:
    """Names of a data set's columns, and ours.

    Args:
        data: the data set's name, as the user gave it.
        rename: our name by that of the data set; of a part of the observations KEY is enough for
            ``obs/KEY``, on both sides.
        ours: the columns that there are.

    Raises:
        DataSetError: it gives a name that we do not have, or one name twice.
    """

    def __init__(self, data: str, rename: Mapping[str, str], ours: Collection[str]) -> None:
        self._data = data
        self._theirs: dict[str, str] = {}
        for theirs, wanted in rename.items():
            name = wanted if wanted in ours else f"{_OBS}{wanted}"
            if name not in ours:
                why = f"rename makes {theirs!r} {wanted!r}, and a sample has no such column"
                raise DataSetError(data, why, f"the columns are {', '.join(ours)}")
            if name in self._theirs:
                why = f"rename makes both {self._theirs[name]!r} and {theirs!r} {name!r}"
                raise DataSetError(data, why, "rename one")
            self._theirs[name] = theirs

    def __bool__(self) -> bool:
        return bool(self._theirs)

    def check(self, theirs: Collection[str]) -> None:
        """Check that the data set, whose columns are `theirs`, has all that is renamed.

        Raises:
            DataSetError: names the first that it does not have.
        """
        for ours, name in self._theirs.items():
            if name not in theirs and f"{_OBS}{name}" in theirs:
                self._theirs[ours] = f"{_OBS}{name}"
            elif name not in theirs:
                has = ", ".join(sorted(theirs)[:20]) or "nothing"
                why = f"rename names {name!r}, which it does not have"
                raise DataSetError(self._data, why, f"it has {has}")

    def theirs(self, ours: str, usual: str | None = None) -> str:
        """Return the data set's name of one of our columns.

        Args:
            usual: the name where nothing is renamed to it; None: ours.
        """
        return self._theirs.get(ours, ours if usual is None else usual)

    def ours(self, theirs: str) -> str:
        """Return our name of one of the data set's columns."""
        return next((name for name, other in self._theirs.items() if other == theirs), theirs)

    def rename(self, columns: Mapping[str, T]) -> dict[str, T]:
        """Return columns under our names; one whose name another one takes is hidden.

        Raises:
            DataSetError: they have not all that is renamed.
        """
        self.check(columns)
        renamed = {self.ours(name): column for name, column in columns.items()}
        return {name: columns.get(self.theirs(name), column) for name, column in renamed.items()}


class RenamedRows:
    """Rows at rest under our names, as `StoredRows`."""

    def __init__(self, stored: StoredRows, renaming: Renaming) -> None:
        self._stored = stored
        self._theirs = renaming.rename({name: name for name in stored.names})

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def dtype(self) -> np.dtype[Any]:
        """A row."""
        theirs = self._stored.dtype
        pairs = self._theirs.items()
        return np.dtype([(ours, theirs[name].base, theirs[name].shape) for ours, name in pairs])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self._theirs)

    def pieces(self, name: str) -> Iterator[NDArray[Any]]:
        """Copies of parts of one column, oldest first, of some megabytes each."""
        yield from self._stored.pieces(self._theirs[name])

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of some rows of one column."""
        return self._stored.take(self._theirs[name], rows)

    def column(self, name: str) -> NDArray[Any]:
        """A copy of one column."""
        return self._stored.column(self._theirs[name])
