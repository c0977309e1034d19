"""The rows of a data set in the dtypes of a run's transitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.exact_cast import InexactCastError, cast_exactly
from vedette_rl.errors import DataSetError
from vedette_rl.replay.export import StoredRows


class CastRows:
    """Rows at rest in the dtypes of a transition, as `StoredRows`. Rows without ``n_steps`` are of
    one step each.

    Args:
        name: the data set's name, as the user gave it.
        stored: the rows; columns that a transition does not have stay as they are.
        row: a transition.
    """

    def __init__(self, name: str, stored: StoredRows, row: np.dtype[Any]) -> None:
        self._name = name
        self._stored = stored
        of_steps = {"n_steps": np.dtype(np.uint8)} if "n_steps" not in stored.names else {}
        self._dtypes = {
            column: row[column] if column in (row.names or ()) else stored.dtype[column]
            for column in stored.names
        } | of_steps

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def dtype(self) -> np.dtype[Any]:
        """A row."""
        return np.dtype([(name, of.base, of.shape) for name, of in self._dtypes.items()])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self._dtypes)

    def pieces(self, name: str) -> Iterator[NDArray[Any]]:
        """Copies of parts of one column, oldest first, of some megabytes each."""
        if name not in self._stored.names:
            if len(self):
                yield self.take(name, np.arange(len(self)))
            return
        begin = 0
        for piece in self._stored.pieces(name):
            yield self._cast(name, piece, np.arange(begin, begin + len(piece)))
            begin += len(piece)

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of some rows of one column."""
        if name not in self._stored.names:
            return np.ones(len(rows), self._dtypes[name])
        return self._cast(name, self._stored.take(name, rows), rows)

    def column(self, name: str) -> NDArray[Any]:
        """A copy of one column."""
        return self.take(name, np.arange(len(self)))

    def _cast(self, name: str, values: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
        """Cast values of these rows.

        Raises:
            DataSetError: one would change.
        """
        try:
            return cast_exactly(values, self._dtypes[name].base)
        except InexactCastError as error:
            why = f"sample {rows[error.row]:,}: column {name!r} has {error}"
            raise DataSetError(self._name, why, "repair it or leave it out") from error
