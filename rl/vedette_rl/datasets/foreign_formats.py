"""Files of samples in formats that are not read, and what becomes of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

from vedette_rl.errors import DataSetError

_PICKLED = "runs what is in it when it is read, so it is never read"
_FIX = (
    "load it where you trust it, and write its arrays by numpy.savez(FILE, obs=..., action=..., "
    "reward=..., next_obs=..., terminated=..., truncated=...)"
)
_PICKLE_VERSIONS = (2, 3, 4, 5)
_MAGICS = {b"PAR1": "Parquet", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_TEXTS = {".csv": "CSV", ".tsv": "TSV", ".json": "JSON", ".jsonl": "JSON Lines"}


def refuse_foreign_format(path: Path) -> None:
    """Refuse a file that is known to be something else than npz or HDF5: a buffer of another
    library, a table.

    Raises:
        DataSetError: it is one.
    """
    with path.open("rb") as file:
        head = file.read(4)
    if what := _name_format(path, head):
        raise DataSetError(str(path), what, _FIX)


def _name_format(path: Path, head: bytes) -> str:
    if len(head) > 1 and head[0] == 0x80 and head[1] in _PICKLE_VERSIONS:
        return f"it is a pickle, which {_PICKLED}"
    for magic, name in _MAGICS.items():
        if head.startswith(magic):
            return f"it is {name}, which is not read"
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            if any(name.endswith("/data.pkl") for name in file.namelist()):
                return f"it is a file of torch.save, a pickle, which {_PICKLED}"
    elif text := _TEXTS.get(path.suffix.lower()):
        return f"it is {text}, which is not read"
    return ""
