"""Turns what libraries raise of a torn data set into one error."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from vedette_rl.errors import DataSetError

_OF_TORN_DATA = (
    OSError,
    KeyError,
    ValueError,
    IndexError,
    TypeError,
    AttributeError,
    EOFError,
    zipfile.BadZipFile,
)


@contextmanager
def reading_data(name: str, *of_library: type[Exception]) -> Iterator[None]:
    """Raise what the libraries that read a data set raise of a torn one as a `DataSetError`.

    Args:
        name: the data set.
        of_library: the library's errors that do not inherit from one of Python's.

    Raises:
        DataSetError: it cannot be read.
    """
    of_torn_data: tuple[type[Exception], ...] = (*_OF_TORN_DATA, *of_library)
    try:
        yield
    except of_torn_data as error:
        code = error.errno if isinstance(error, OSError) else None
        text = " ".join((os.strerror(code) if code else str(error)).split())
        if isinstance(error, zipfile.BadZipFile) and "not a zip file" in text:
            text = "it is neither npz nor HDF5, or its end is missing"
        why = f"it cannot be read ({text[:200]})"
        raise DataSetError(name, why, "name a whole data set") from error
