"""The checkpoints of a run: a directory each, the newest few. `state_file` is their format.

::

    checkpoints = Checkpoints(run / "checkpoints", keep=3)
    loaded = checkpoints.load_latest()               # None where a run begins
    ...
    checkpoints.save(agent.opt_steps, {"agent": agent.get_state()}, {"run_id": run_id})
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vedette_rl.core import State
from vedette_rl.errors import CheckpointError, CheckpointFormatError, DivergedError
from vedette_rl.storage.atomic_files import remove_directory
from vedette_rl.storage.state_file import (
    STATE_FILE,
    Throttle,
    check_state,
    no_throttle,
    read_state,
    write_state,
)
from vedette_rl.storage.unfinished import remove_unfinished

Read = TypeVar("Read")

_UNREADABLE = ".unreadable"
_TRIES = 20


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """A checkpoint that was read.

    Args:
        path: the checkpoint's directory.
        state: the state that was given to `Checkpoints.save`.
        meta: the meta that was given with it.
        skipped: errors of newer ones that could not be read; worth a warning each.
    """

    path: Path
    state: State
    meta: dict[str, Any]
    skipped: tuple[str, ...]


class Checkpoints:
    """The checkpoints of a run: ``root/<opt_steps>/``, the newest `keep` of them.

    Args:
        root: made when the first is saved.
        keep: the number of checkpoints that stay, at least 1.
    """

    def __init__(self, root: str | Path, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"at least one checkpoint is kept, not {keep}")
        self.root = Path(root)
        self.keep = keep

    def save(
        self,
        opt_steps: int,
        state: State,
        meta: Mapping[str, Any],
        throttle: Throttle = no_throttle,
    ) -> Path:
        """Write a checkpoint, then remove the oldest beyond `keep`; its directory.

        Raises:
            CheckpointError: it could not be written; the earlier ones are as they were, and the
                caller may continue and try again later.
        """
        directory = self.root / str(opt_steps)
        write_state(directory, state, meta, throttle)
        with contextlib.suppress(OSError):  # the run was moved since: the next save finds that
            remove_unfinished(self.root)
            for old in self.list()[: -self.keep]:
                with contextlib.suppress(OSError):  # tried again at the next save
                    remove_directory(old)
        return directory

    def remove_leftovers(self) -> None:
        """Remove what killed processes left; only by the one process that saves here."""
        remove_unfinished(self.root)

    def list(self) -> list[Path]:
        """The directories of whole checkpoints, oldest first."""
        if not self.root.is_dir():
            return []
        numbered = [path for path in self.root.iterdir() if path.name.isdecimal()]
        whole = [path for path in numbered if (path / STATE_FILE).is_file()]
        return sorted(whole, key=lambda path: int(path.name))

    def latest(self) -> Path | None:
        """The directory of the newest; None where there is none."""
        checkpoints = self.list()
        return checkpoints[-1] if checkpoints else None

    def read(self, which: str) -> LoadedCheckpoint | None:
        """Read one, chosen again where a run that continues has removed it meanwhile; None where
        there is none.

        Args:
            which: the checkpoint's optimization steps, or ``latest``.

        Raises:
            CheckpointError: it cannot be read.
        """
        for tries_left in reversed(range(_TRIES)):
            wanted = [path for path in self.list() if which in ("latest", path.name)]
            if not wanted:  # it may have been listed between two of them
                continue
            try:
                return LoadedCheckpoint(wanted[-1], *read_state(wanted[-1]), ())
            except CheckpointError:
                if wanted[-1].exists() or not tries_left:
                    raise
        return None

    def load_latest(self) -> LoadedCheckpoint | None:
        """The newest that can be read; None where there is none at all.

        Raises:
            CheckpointError: there are some and none can be read.
        """
        newest = self._newest_readable(read_state)
        if newest is None:
            return None
        path, (state, meta), skipped = newest
        return LoadedCheckpoint(path, state, meta, skipped)

    def unreadable_after(self, opt_steps: int) -> Iterator[tuple[int, str]]:
        """The optimization steps of those newer than `opt_steps` that cannot be read, and why."""
        for path in self.list():
            if int(path.name) > opt_steps:
                try:
                    check_state(path)
                except CheckpointError as e:
                    yield int(path.name), e.why

    def put_aside_after(self, opt_steps: int) -> None:
        """Rename those newer than `opt_steps`, which could not be read: none counts as the newest
        or takes the place of a whole one. Only by the one process that saves here."""
        for path in self.list():
            if int(path.name) > opt_steps:
                aside = path.with_name(f"{path.name}{_UNREADABLE}")
                shutil.rmtree(aside, ignore_errors=True)  # of an earlier time
                with contextlib.suppress(OSError):
                    path.rename(aside)

    def newest_readable(self) -> tuple[Path, dict[str, Any]] | None:
        """The directory and meta of what `load_latest` will load; None where there is none at all.

        Raises:
            CheckpointError: as `load_latest`.
        """
        newest = self._newest_readable(check_state)
        return newest[:2] if newest else None

    def _newest_readable(
        self, read: Callable[[Path], Read]
    ) -> tuple[Path, Read, tuple[str, ...]] | None:
        """Its directory, the result of `read`, and the errors of newer ones."""
        failed: tuple[CheckpointError, ...] = ()
        for path in reversed(self.list()):
            try:
                return path, read(path), tuple(map(str, failed))
            except CheckpointFormatError:
                raise  # it is whole: going on from an older one would lose what came between
            except CheckpointError as e:
                failed += (e,)
        if failed:
            newest = failed[0]
            why = (
                f"{newest.why}; no other can be read: put a whole one back, or move {self.root} "
                "aside to learn again from the samples that are there"
            )
            raise CheckpointError(newest.path, "read", why)
        return None


@dataclass(frozen=True, slots=True)
class TakenWeights:
    """The weights that an agent takes over from another.

    Args:
        state: the agent's state with the taken arrays.
        taken: arrays that fit, as ``PART/NAME``.
        left: arrays that stay as they are, each with the reason.
        unused: arrays of the other that the agent has no place for.
    """

    state: State
    taken: tuple[str, ...]
    left: tuple[str, ...]
    unused: tuple[str, ...] = ()

    def describe(self, source: str) -> list[str]:
        """Say how many arrays come from `source`, and how many do not, each with the first few."""
        count = f"{len(self.taken)} of {len(self.taken) + len(self.left)} arrays"
        lines = [f"begins with {count} from {source}: {first_few(self.taken)}"]
        new = f"begins anew with {len(self.left)}: {first_few(self.left)}"
        unused = f"has no place for {len(self.unused)} of its arrays: {first_few(self.unused)}"
        return [*lines, *[new] * bool(self.left), *[unused] * bool(self.unused)]


def find_not_finite(state: Any, path: str = "") -> str:
    """The path of the first array or tensor with a value that is not finite; "" without one."""
    if isinstance(state, Mapping):
        inner = (find_not_finite(part, f"{path}/{name}") for name, part in state.items())
        return next(filter(None, inner), "").removeprefix("/" * (not path))
    if hasattr(state, "isfinite"):  # a tensor of any device and precision, with a gradient or not
        return "" if state.isfinite().all() else path
    floats = isinstance(state, (np.ndarray, np.generic)) and state.dtype.kind == "f"
    return path if floats and not np.isfinite(state).all() else ""


def refuse_diverged(opt_steps: int, state: Any) -> None:
    """Raise where an agent's state or model has a value that is not finite.

    Raises:
        DivergedError: it has one.
    """
    if name := find_not_finite(state):
        raise DivergedError(f"{name} is not finite", opt_steps)


_NAMED = 3


def first_few(names: Sequence[str]) -> str:
    """The first few of these texts, and the number of the others."""
    more = len(names) - _NAMED
    return "; ".join([*names[:_NAMED], *[f"and {more} more"] * (more > 0)])


def weight_parts(state: State) -> dict[str, Mapping[str, Any]]:
    """The parts of an agent's state that are weights: names to tensors of floats, no further."""
    return {
        part: arrays
        for part, arrays in state.items()
        if isinstance(arrays, Mapping) and arrays and all(map(_is_floats, arrays.values()))
    }


def take_weights(state: State, source: Mapping[str, Mapping[str, Any]]) -> TakenWeights:
    """Replace an agent's weights by another agent's, where name and shape are the same.

    Args:
        state: the agent's state.
        source: the other's `weight_parts`.
    """
    parts: State = dict(state)
    mine, source = _taken_parts(weight_parts(state)), _taken_parts(source)
    taken, left = list[str](), list[str]()
    for part, arrays in mine.items():
        there = source.get(part, {})
        differ = {
            name: why for name, array in arrays.items() if (why := _misfit(array, there, name))
        }
        if differ and part in _WHOLE_PARTS:
            differ = {name: differ.get(name, "as the others of its part") for name in arrays}
        left += [f"{part}/{name}: {why}" for name, why in differ.items()]
        fits = [name for name in arrays if name not in differ]
        taken += [f"{part}/{name}" for name in fits]
        parts[part] = {
            **parts[part],
            **{name: _in_form_of(arrays[name], there[name]) for name in fits},
        }
    unused = [
        f"{part}/{name}" for part in source for name in source[part].keys() - mine.get(part, {})
    ]
    return TakenWeights(parts, tuple(taken), tuple(left), tuple(sorted(unused)))


_WHOLE_PARTS = frozenset({"normalizer", "observed"})
"""Parts of which all arrays are taken, or none: a mean and the number of its batches."""


def _taken_parts(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return parts without what each run counts anew, and earlier versions had not."""
    return {
        part: {name: array for name, array in arrays.items() if name != "outliers"}
        if part in _WHOLE_PARTS
        else arrays
        for part, arrays in parts.items()
    }


def _misfit(array: Any, there: Mapping[str, Any], name: str) -> str:  # an array, or a tensor
    """Return why an array of the other does not fit; "" where it does."""
    if name not in there:
        return "not there"
    stored = tuple(there[name].shape)
    shape = tuple(array.shape)
    return "" if stored == shape else f"{stored} there, {shape} here"


def _is_floats(leaf: object) -> bool:
    """True for arrays of numpy and tensors of torch, of floats."""
    return hasattr(leaf, "shape") and str(getattr(leaf, "dtype", "")).find("float") >= 0


def _in_form_of(ours: Any, theirs: Any) -> Any:  # an array, or a tensor
    """Convert the other's values to our array's dtype and kind."""
    if isinstance(ours, np.ndarray):
        return np.array(theirs, ours.dtype)
    return ours.new_tensor(np.asarray(theirs))
