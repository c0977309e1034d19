"""Files of columns, ``.npz`` and HDF5, as arrays by name.

::

    columns = read_column_file(Path("demos.hdf5"))      # {"obs": ..., "reward": ...}

What lies in a file as it is in memory is mapped, and stays on the disk until it is used. Nothing is
unpickled.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.datasets.foreign_formats import refuse_foreign_format
from vedette_rl.datasets.torn_data import reading_data
from vedette_rl.errors import DataSetError

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_PIECE_BYTES = 16 << 20
_BESIDE = ("infos", "metadata", "mask")
"""Groups of D4RL's and robomimic's files that hold no columns of steps."""


def is_hdf5(path: Path) -> bool:
    """Return True if a file is HDF5, by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(_HDF5_MAGIC)) == _HDF5_MAGIC


def require_h5py(name: str) -> None:
    """Check that HDF5 can be read here.

    Raises:
        DataSetError: h5py is not installed.
    """
    if not importlib.util.find_spec("h5py"):
        why = "it is HDF5, and reading it needs the minari extra (h5py is not installed)"
        raise DataSetError(name, why, "pip install 'vedette[minari]'")


def read_column_file(path: Path) -> dict[str, NDArray[Any]]:
    """Return the columns of an ``.npz`` or HDF5 file by name, those in groups as ``GROUP/NAME``.

    Raises:
        DataSetError: it is torn, of another format, or a column holds Python objects.
    """
    with reading_data(str(path)):
        if is_hdf5(path):
            require_h5py(str(path))
            return _read_hdf5(path)
        refuse_foreign_format(path)
        with zipfile.ZipFile(path) as file:
            entries = [entry for entry in file.infolist() if entry.filename.endswith(".npy")]
            return {
                entry.filename.removesuffix(".npy"): _npy_array(file, entry) for entry in entries
            }


def _read_hdf5(path: Path) -> dict[str, NDArray[Any]]:
    import h5py

    with h5py.File(path, "r") as file:
        found = dict(_data_sets(file))
        return {name: _hdf5_array(path, name, data) for name, data in found.items()}


def _data_sets(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:  # h5py has no types
    """Yield what a file holds itself; links to other files are left out."""
    import h5py

    for key in group:
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            continue
        if not prefix and key in _BESIDE:
            continue
        inner = group[key]
        if isinstance(inner, h5py.Group):
            yield from _data_sets(inner, f"{prefix}{key}/")
        elif inner.shape:  # else it is one number about the whole
            yield f"{prefix}{key}", inner


def _hdf5_array(path: Path, name: str, data: Any) -> NDArray[Any]:  # an h5py.Dataset
    if data.dtype.hasobject:
        raise _of_objects(path, name)
    offset = data.id.get_offset()
    if offset is None or data.external or not data.size:  # in chunks, perhaps compressed
        return np.asarray(data[()])
    return np.memmap(path, data.dtype, "r", offset, data.shape)


def _of_objects(path: Path, name: str) -> DataSetError:
    why = f"its column {name!r} holds Python objects, which are never read"
    fix = f"leave {name!r} out of the file, or store it as numbers"
    return DataSetError(str(path), why, fix)


def _npy_array(file: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    """A member of an npz: mapped where it lies as it is, else read."""
    path = Path(str(file.filename))
    with file.open(entry) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(member)
        if dtype.hasobject:
            raise _of_objects(path, entry.filename.removesuffix(".npy"))
        if entry.compress_type != zipfile.ZIP_STORED or fortran or not np.prod(shape):
            with file.open(entry) as whole:
                return np.lib.format.read_array(whole, allow_pickle=False)
        head = member.tell()
        while member.read(_PIECE_BYTES):  # to the end, where zipfile compares the checksum
            pass
    with path.open("rb") as raw:
        raw.seek(entry.header_offset + 26)
        name_bytes, extra_bytes = np.frombuffer(raw.read(4), "<u2").tolist()
    begin = entry.header_offset + 30 + name_bytes + extra_bytes + head
    return np.memmap(path, dtype, "r", begin, shape)


class FileRows:
    """The rows of a file, as `StoredRows`.

    Args:
        name: the data set's name, as the user gave it.
        columns: as `read_column_file` returns them.

    Raises:
        DataSetError: the columns have no rows, or not the same number.
    """

    def __init__(self, name: str, columns: dict[str, NDArray[Any]]) -> None:
        self._columns = columns
        first = next((key for key in ("reward", *columns) if key in columns), "")
        self._length = len(columns[first]) if first and columns[first].shape else 0
        for key, column in columns.items():
            if column.shape[:1] != (self._length,):
                rows = f"{len(column):,} rows" if column.shape else "no rows"
                why = f"its column {key!r} has {rows}, and {first!r} has {self._length:,}"
                fix = f"leave {key!r} out of the file, or store {self._length:,} rows of it"
                raise DataSetError(name, why, fix)

    def __len__(self) -> int:
        return self._length

    @property
    def dtype(self) -> np.dtype[Any]:
        """A row."""
        columns = self._columns.items()
        return np.dtype([(name, column.dtype, column.shape[1:]) for name, column in columns])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self._columns)

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of some rows of one column."""
        return np.asarray(self._columns[name][rows])

    def pieces(self, name: str) -> Iterator[NDArray[Any]]:
        """Copies of parts of one column, of some megabytes each."""
        column = self._columns[name]
        size = max(1, _PIECE_BYTES // max(1, column.nbytes // max(1, len(column))))
        for begin in range(0, len(column), size):
            yield np.array(column[begin : begin + size])

    def column(self, name: str) -> NDArray[Any]:
        """A copy of one column."""
        return np.array(self._columns[name])
