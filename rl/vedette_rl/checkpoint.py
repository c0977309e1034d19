"""States on disk: whole or not at all, and never unpickled.

A state is a dict of dicts. Its tensors and arrays go into ``state.safetensors`` under their paths
(``optimizer/state/0/exp_avg``); all the rest of it is JSON in that file's metadata, so that one
rename makes the whole of it visible. ``meta.json`` beside it is a copy for people to read.

::

    checkpoints = Checkpoints(run / "checkpoints", keep=3)
    loaded = checkpoints.load_latest()               # None where a run begins
    ...
    checkpoints.save(agent.opt_steps, {"agent": agent.get_state()}, {"run_id": run_id})
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from vedette_rl.core import State
from vedette_rl.errors import CheckpointError
from vedette_rl.state_tree import Leaves, StateTypeError, join_state, split_state

STATE_FILE = "state.safetensors"
META_FILE = "meta.json"
FORMAT = "1"
_ASIDE = ".writing-"
_PARTS_MAX = 1024  # of one gathered write: Linux's IOV_MAX

Parts = list[memoryview]
"""A file's bytes, piece after piece."""

GiveWay = Callable[[], None]
"""Called between two pieces of a write, to let what runs beside it have the processor."""


def at_once() -> None:
    """Gives way to nobody."""


def write_state(
    directory: str | Path, state: State, meta: Mapping[str, Any], give_way: GiveWay = at_once
) -> None:
    """Make `directory` hold `state`, at once: whoever looks sees it whole, or what was there
    before. It is on the disk when this returns.

    Args:
        directory: made if it is not there; one that is there keeps its other files.
        state: leaves are tensors, arrays, numbers, strings, booleans or None.
        meta: what is worth knowing of it, of JSON's types.
        give_way: see `GiveWay`.

    Raises:
        CheckpointError: the disk is full, the directory read-only, or a leaf is of another type.
            What was there before is still there.
    """
    directory = Path(directory)
    try:
        files = _files(state, meta)
    except (StateTypeError, TypeError, ValueError) as e:
        raise CheckpointError(directory, "write", str(e)) from e
    give_way()
    try:
        if directory.is_dir():
            _write_into(directory, files, give_way)
        else:
            _write_new(directory, files, give_way)
    except OSError as e:
        raise CheckpointError(directory, "write", e.strerror or str(e)) from e


def read_state(directory: str | Path) -> tuple[State, dict[str, Any]]:
    """The state and meta that stand in `directory`. Tensors are on the CPU.

    Raises:
        CheckpointError: there is none, or it is torn or foreign.
    """
    path = Path(directory) / STATE_FILE
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise CheckpointError(path, "read", f"its format is {metadata.get('format')!r}")
        tree, meta = json.loads(metadata["state"]), json.loads(metadata["meta"])
        state = join_state(tree, lambda framework: safe_open(path, framework=framework))
    except OSError as e:
        raise CheckpointError(path, "read", e.strerror or str(e)) from e
    except (SafetensorError, ValueError, KeyError, TypeError) as e:
        raise CheckpointError(path, "read", f"it is torn or foreign ({e})") from e
    if not isinstance(state, dict) or not isinstance(meta, dict):
        raise CheckpointError(path, "read", "it is torn or foreign (no state in it)")
    return state, meta


def _write_new(directory: Path, files: dict[str, Parts], give_way: GiveWay) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    aside = directory.with_name(f"{_ASIDE}{directory.name}-{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)  # of a killed process that had our number
    try:
        aside.mkdir()
        for name, parts in files.items():
            _write_file(aside / name, parts)
            give_way()
        _sync_directory(aside)
        aside.rename(directory)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _sync_directory(directory.parent)
    give_way()


def _write_into(directory: Path, files: dict[str, Parts], give_way: GiveWay) -> None:
    _clear_aside(directory)
    for name, parts in files.items():
        aside = directory / f"{_ASIDE}{name}-{os.getpid()}"
        try:
            _write_file(aside, parts)
            aside.replace(directory / name)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise
        give_way()
    _sync_directory(directory)


def _files(state: State, meta: Mapping[str, Any]) -> dict[str, Parts]:
    """What stands in a checkpoint, by file; the state first."""
    tree, leaves = split_state(state)
    pairs = [f"{json.dumps(str(key))}: {json.dumps(value)}" for key, value in meta.items()]
    metadata = {"format": FORMAT, "state": json.dumps(tree), "meta": "{" + ", ".join(pairs) + "}"}
    readable = "{\n  " + ",\n  ".join(pairs) + "\n}\n"
    return {STATE_FILE: _safetensors(leaves, metadata), META_FILE: [memoryview(readable.encode())]}


def _safetensors(leaves: Leaves, metadata: dict[str, str]) -> Parts:
    """The format of github.com/huggingface/safetensors: u64 length of the header, the header in
    JSON, the data. Written here because the library would copy all data once more, and tells of a
    full disk in words of its own."""
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, leaf in leaves.items():
        begin, end = end, end + leaf.data.nbytes
        offsets = [begin, end]
        header[name] = {"dtype": leaf.dtype, "shape": leaf.shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    return [memoryview(head), *(leaf.data.data for leaf in leaves.values())]


def _write_file(path: Path, parts: Parts) -> None:
    """All of it is on the disk when this returns.

    A training loop beside it waits whenever this thread has the interpreter, so the whole file is
    one call of the system and no Python between its tensors.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        while parts:
            parts = _after(parts, os.writev(descriptor, parts[:_PARTS_MAX]))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _after(parts: Parts, written: int) -> Parts:
    """What is left of `parts` beyond the first `written` bytes."""
    for place, part in enumerate(parts):
        if written < part.nbytes:
            return [part[written:], *parts[place + 1 :]]
        written -= part.nbytes
    return []


def _clear_aside(directory: Path) -> None:
    """Remove what a killed process left half written; one process writes at a time."""
    for path in directory.glob(f"{_ASIDE}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint that was read.

    Args:
        path: its directory.
        state: as it was given to `Checkpoints.save`.
        meta: likewise.
        skipped: what was said of newer ones that could not be read; worth a warning each.
    """

    path: Path
    state: State
    meta: dict[str, Any]
    skipped: tuple[str, ...]


class Checkpoints:
    """The checkpoints of a run: ``root/<opt_steps>/``, the newest `keep` of them.

    Args:
        root: made when the first is saved.
        keep: how many stay, at least 1.
    """

    def __init__(self, root: str | Path, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"at least one checkpoint is kept, not {keep}")
        self.root, self.keep = Path(root), keep

    def save(
        self,
        opt_steps: int,
        state: State,
        meta: Mapping[str, Any],
        give_way: GiveWay = at_once,
    ) -> Path:
        """Write a checkpoint, then remove the oldest beyond `keep`; its directory.

        Raises:
            CheckpointError: it could not be written; the earlier ones are as they were, and the
                caller may go on and try again later.
        """
        directory = self.root / str(opt_steps)
        write_state(directory, state, meta, give_way)
        _clear_aside(self.root)
        for old in self.list()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)  # tried again at the next save
        return directory

    def list(self) -> list[Path]:
        """The directories of whole checkpoints, oldest first."""
        if not self.root.is_dir():
            return []
        found = [path for path in self.root.iterdir() if path.name.isdecimal()]
        whole = [path for path in found if (path / STATE_FILE).is_file()]
        return sorted(whole, key=lambda path: int(path.name))

    def latest(self) -> Path | None:
        """The directory of the newest; None where there is none."""
        found = self.list()
        return found[-1] if found else None

    def load_latest(self) -> Loaded | None:
        """The newest that can be read; None where there is none at all.

        Raises:
            CheckpointError: there are some and none can be read.
        """
        failed: list[CheckpointError] = []
        for path in reversed(self.list()):
            try:
                state, meta = read_state(path)
            except CheckpointError as e:
                failed.append(e)
            else:
                return Loaded(path, state, meta, tuple(map(str, failed)))
        if failed:
            newest = failed[0]
            why = f"{newest.why}; no other can be read: put a whole one back, or begin anew"
            raise CheckpointError(newest.path, "read", why)
        return None
