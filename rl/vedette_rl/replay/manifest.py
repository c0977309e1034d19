"""The description of a replay's rows on disk, in ``ring.json``.

The file is written last of all of a replay's, so that it is there or nothing is.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vedette_rl.core.columns import row_dtype
from vedette_rl.errors import BEGIN_EMPTY, ReplayFormatError, ReplayTornError, other_format
from vedette_rl.storage.atomic_files import replace_file
from vedette_rl.storage.regular_files import open_regular, parse_json

FORMAT = "vedette replay"
FORMAT_VERSION = 1
MANIFEST = "ring.json"
MANIFEST_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column as the manifest names it: `dtype` in numpy's letters (``<f4``)."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{np.dtype(self.dtype).name} {self.shape}"


@dataclass(frozen=True, slots=True)
class SharedSpec:
    """Columns of what rows share, in a ring of their own: its entries, not the rows', are counted.

    Args:
        columns: the columns of an entry; their names are not those of the rows' columns.
        capacity: entries that are kept.
        guard: entries that may be appended before a commit.
        keep: entries before those of the capacity that are left alone, too.
    """

    columns: tuple[ColumnSpec, ...]
    capacity: int
    guard: int
    keep: int = 0

    @property
    def all_entries(self) -> int:
        """Entries that there is place for, those of the guard too."""
        return self.capacity + self.guard + self.keep

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """An entry."""
        return row_dtype([(c.name, np.dtype(c.dtype), c.shape) for c in self.columns])

    @property
    def total_bytes(self) -> int:
        """Bytes of all its entries."""
        return self.all_entries * self.row_dtype.itemsize


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of ``ring.json``.

    Args:
        uid: 32 hex digits drawn when the replay was made; every file carries them.
        run_id: the run that the rows are of.
        capacity: rows that can be drawn.
        guard: rows that may be appended before a commit; stored beside the capacity.
        columns: the columns in order.
        shared: the columns that rows share; None: nothing.
        keep: rows before those that can be drawn that are left alone, too.
    """

    uid: str
    run_id: str
    capacity: int
    guard: int
    columns: tuple[ColumnSpec, ...]
    shared: SharedSpec | None = None
    keep: int = 0

    @property
    def physical_rows(self) -> int:
        return self.capacity + self.guard + self.keep

    @property
    def total_bytes(self) -> int:
        """Bytes of all rows, and of what they share."""
        shared = self.shared.total_bytes if self.shared else 0
        return self.physical_rows * self.row_dtype.itemsize + shared

    @property
    def row_dtype(self) -> np.dtype[Any]:
        return row_dtype([(c.name, np.dtype(c.dtype), c.shape) for c in self.columns])


def column_specs(dtype: np.dtype[Any]) -> tuple[ColumnSpec, ...]:
    """The columns of a row dtype."""
    if dtype.fields is None:
        raise ValueError(f"{dtype} describes no row: a structured dtype is needed")
    return tuple(
        ColumnSpec(name, field.base.str, field.shape) for name, (field, *_) in dtype.fields.items()
    )


def new_manifest(
    dtype: np.dtype[Any],
    capacity: int,
    guard: int,
    run_id: str,
    shared: SharedSpec | None = None,
    keep: int = 0,
) -> Manifest:
    """A manifest for a replay that does not exist yet."""
    uid = secrets.token_hex(16)
    return Manifest(uid, run_id, capacity, guard, column_specs(dtype), shared, keep)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write ``ring.json``: the replay exists from then on."""
    text = json.dumps(manifest_to_json(manifest), indent=1)
    replace_file(directory / MANIFEST, text, durable=True)


def manifest_to_json(manifest: Manifest) -> dict[str, Any]:
    """The content of ``ring.json``."""
    content = {"format": FORMAT, "version": FORMAT_VERSION, **asdict(manifest)}
    for ring in filter(None, (content, content["shared"])):
        if not ring["keep"]:  # version 0.2 does not know it
            del ring["keep"]
    return content


def read_manifest(directory: Path) -> Manifest:
    """Read ``ring.json``.

    Raises:
        ReplayFormatError: it is not there, not a replay's, or of another format version.
    """
    path = directory / MANIFEST
    try:
        with open_regular(path) as file:
            content = parse_json(file.read(MANIFEST_MAX_BYTES))
    except FileNotFoundError as e:
        raise ReplayFormatError(f"{directory} holds no replay: there is no {MANIFEST}") from e
    except OSError as e:
        fix = f"let this user read it, or {BEGIN_EMPTY}"
        raise ReplayFormatError(f"{path} cannot be read: {e.strerror}: {fix}") from e
    except ValueError as e:
        raise ReplayTornError(path, "is damaged (no JSON)") from e
    return manifest_from_json(content, path)


def manifest_from_json(content: Any, path: Path) -> Manifest:
    """The manifest that `manifest_to_json` gave.

    Args:
        content: it, as it was read.
        path: where that was.

    Raises:
        ReplayFormatError: it is not a replay's, or of another format version.
    """
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise ReplayFormatError(f"{path} is no replay's: name another directory, or {BEGIN_EMPTY}")
    version = content.pop("version", None)
    if version != FORMAT_VERSION:
        raise ReplayFormatError(f"{path}: {other_format(version, FORMAT_VERSION)}")
    try:
        return _manifest(content)
    except (KeyError, TypeError, ValueError) as e:
        raise ReplayTornError(path, f"is damaged ({e})") from e


def _manifest(content: dict[str, Any]) -> Manifest:
    columns = _checked_columns(content.pop("columns"))
    shared = _shared(content.pop("shared"))
    manifest = Manifest(columns=columns, shared=shared, **content)
    for ring in (manifest, shared) if shared else (manifest,):
        if not (type(ring.capacity) is type(ring.guard) is type(ring.keep) is int):
            raise ValueError("capacity, guard and keep are no numbers")
        if ring.capacity < 1 or ring.guard < 1 or ring.keep < 0 or not ring.columns:
            raise ValueError(f"capacity {ring.capacity}, guard {ring.guard}, keep {ring.keep}")
    bytes.fromhex(manifest.uid)
    return manifest


def _shared(content: dict[str, Any] | None) -> SharedSpec | None:
    if content is None:
        return None
    capacity, guard = content.pop("capacity"), content.pop("guard")
    columns = _checked_columns(content.pop("columns"))
    return SharedSpec(columns, capacity, guard, content.pop("keep", 0))


def _checked_columns(columns: list[dict[str, Any]]) -> tuple[ColumnSpec, ...]:
    return tuple(_checked(ColumnSpec(**column)) for column in columns)


def _checked(spec: ColumnSpec) -> ColumnSpec:
    if np.dtype(spec.dtype).kind not in "biuf" or type(spec.name) is not str:
        raise ValueError(f"column {spec.name!r} of {spec.dtype}")
    if not all(type(size) is int and size >= 0 for size in spec.shape):
        raise ValueError(f"column {spec.name!r} of shape {spec.shape}")
    return replace(spec, shape=tuple(spec.shape))
