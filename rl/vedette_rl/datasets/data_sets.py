"""Reads data sets into transitions: Minari's, exported replays, and replays of other runs.

::

    data = MinariData("minari:ID", observation_space, action_space)    # or a folder
    for columns in transitions(data.episodes(), processor, rewards, marks=False): ...

    rows = open_npz("FILE.npz", action_space)     # or open_replay_rows(name, directory)
    rows.check(row_dtype, optional=frozenset())
    for columns in rows.rows(row_dtype): ...      # or transitions of rows.episodes()

A *Minari* data set holds episodes with the environment's own actions and rewards. A *replay* holds
rows: transitions, of which those of one step can be put together to episodes again.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step, StepProcessor
from vedette_rl.core.columns import INTERVENED
from vedette_rl.datasets.minari import episodes, missing_packages
from vedette_rl.envs.spaces import ObservationColumn, action_field, observation_columns
from vedette_rl.errors import DataSetError, SpaceLayoutError
from vedette_rl.replay.export import LiveRows, StoredRows

MINARI = "minari:"
"""Begins the name of a Minari data set on this host."""

EPISODES_AT_ONCE = 32
"""Episodes that are put through a step processor side by side."""

_GROUP_BYTES = 256 << 20
_PIECE_BYTES = 16 << 20

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

_OF_SPACES = ("obs", "next_obs", "action")
"""The columns whose form depends on the environment."""


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """An episode of T steps.

    Args:
        number: its place in the data set.
        obs: columns ``obs...`` of ``(T + 1, *shape)``.
        action: ``(T, *shape)`` as agents see them.
        reward: ``(T,)``.
        terminated, truncated: flags of its last step. An episode with neither counts as truncated.
        intervened: ``(T,)``, where a person acted; None: the data set does not say.
    """

    number: int
    obs: Columns
    action: NDArray[Any]
    reward: NDArray[Any]
    terminated: bool
    truncated: bool
    intervened: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.action)


class MinariData:
    """A Minari data set on this host.

    Args:
        name: the data set's name, as the user gave it.
        observation: the space of the environment that is trained on, after all wrappers.
        action: its space of actions, as the environment names them.
        stack: frames of an observation, where `env.frame_stack` stacks them; else 0.

    Raises:
        DataSetError: it is not there, torn, or of other spaces.
    """

    def __init__(
        self, name: str, observation: gym.Space[Any], action: gym.Space[Any], stack: int = 0
    ) -> None:
        self.name = name
        if missing := missing_packages():
            why = f"reading it needs the minari extra ({missing[0]} is not installed)"
            raise DataSetError(name, why, "pip install 'vedette[minari]'")
        import minari

        with reading_data(name):
            try:
                if name.startswith(MINARI):
                    self._data = minari.load_dataset(name.removeprefix(MINARI))
                else:
                    self._data = minari.MinariDataset(minari_folder(Path(name)))
                self.length = int(self._data.total_steps)
            except FileNotFoundError as e:
                fix = "name one that `minari list local` has"
                raise DataSetError(name, "there is no such data set here", fix) from e
        self.spec = getattr(self._data, "env_spec", None)
        self._adopt_spaces(observation, action, stack)

    def _adopt_spaces(
        self, observation: gym.Space[Any], action: gym.Space[Any], stack: int
    ) -> None:
        """Compare the spaces with the environment's, and find out what must be stacked."""
        try:
            self._leaves = observation_columns(self._data.observation_space)
        except SpaceLayoutError as e:
            raise DataSetError(self.name, str(e), "name another data set") from e
        self._stack = 0
        wanted = observation_columns(observation)
        if _forms(self._leaves) != _forms(wanted):
            if not stack or _forms(self._leaves) != _forms(wanted, stack):
                raise _other(self.name, "observations", _forms(self._leaves), _forms(wanted))
            self._stack = stack
        if (theirs := _action_form(self._data.action_space)) != (ours := _action_form(action)):
            raise _other(self.name, "actions", theirs, ours)
        self._start: Any = getattr(action, "start", 0)
        self._action_dtype = action_field(action)[1]

    def episodes(self) -> Iterator[RecordedEpisode]:
        """Its episodes, read one at a time.

        Raises:
            DataSetError: one is torn, or has borders where none can be.
        """
        with reading_data(self.name):
            for number, episode in enumerate(self._data.iterate_episodes()):
                yield self._recorded(number, episode)

    def _recorded(self, number: int, episode: Any) -> RecordedEpisode:  # minari.EpisodeData
        steps = len(episode.rewards)
        obs: Columns = {}
        for leaf in self._leaves:
            values = np.asarray(_follow(episode.observations, leaf))
            self._check_shape(number, leaf.name, values, (steps + 1, *leaf.shape))
            with np.errstate(over="ignore"):  # what float32 cannot hold is found as not finite
                obs[leaf.name] = stack_newest(values.astype(leaf.dtype), self._stack)
        action = np.asarray(episode.actions)
        self._check_shape(number, "action", action, (steps, *action_field_shape(self._data)))
        if steps < 1:
            raise self._broken(number, "it has no steps")
        ends = np.asarray(episode.terminations, bool), np.asarray(episode.truncations, bool)
        for name, flags in zip(("terminated", "truncated"), ends, strict=True):
            self._check_shape(number, name, flags, (steps,))
            if flags[:-1].any():
                at = int(np.flatnonzero(flags)[0])
                raise self._broken(number, f"step {at} of {steps} is {name}, and it goes on")
        intervened = (getattr(episode, "infos", None) or {}).get(INTERVENED)
        if intervened is not None:  # Minari's infos begin with that of the reset
            intervened = np.asarray(intervened, bool)[-steps:]
            self._check_shape(number, INTERVENED, intervened, (steps,))
        return RecordedEpisode(
            number,
            obs,
            (action - self._start).astype(self._action_dtype),
            np.asarray(episode.rewards, np.float64),
            bool(ends[0][-1]),
            bool(ends[1][-1]),
            intervened,
        )

    def _check_shape(
        self, number: int, name: str, values: NDArray[Any], shape: tuple[int, ...]
    ) -> None:
        if values.shape != shape:
            raise self._broken(number, f"its {name!r} has shape {values.shape}, not {shape}")

    def _broken(self, number: int, why: str) -> DataSetError:
        return DataSetError(self.name, f"episode {number}: {why}", "repair it or leave it out")


class ReplayData:
    """Rows of an exported replay, or of another run's.

    Args:
        name: the data set's name, as the user gave it.
        stored: the rows.
        first_action: the first discrete action in these rows.
    """

    def __init__(self, name: str, stored: StoredRows, first_action: Any = 0) -> None:
        self.name = name
        self.stored = stored
        self._first_action = first_action
        self.length = len(stored)

    def check(self, row: np.dtype[Any], optional: frozenset[str]) -> None:
        """Check that the rows have these columns.

        Args:
            row: the columns of a transition.
            optional: names of columns that may be missing.

        Raises:
            DataSetError: names the first that is missing, or of another dtype or shape.
        """
        dtype = self.stored.dtype
        for name in row.names or ():
            if name not in (dtype.names or ()):
                if name in optional:
                    continue
                fix = "name an exported replay of the same kind of run"
                raise DataSetError(self.name, f"it has no column {name!r}", fix)
            ours, theirs = row[name], dtype[name]
            if ours.shape != theirs.shape or not np.can_cast(theirs.base, ours.base, "same_kind"):
                wanted = _column_form(ours)
                must, fix = f"it must be {wanted}", f"store it as {wanted}"
                if name.split("/")[0] in _OF_SPACES:
                    must = f"the environment's is {wanted}"
                    fix = "store it so, or name a data set of this environment"
                why = f"its column {name!r} is {_column_form(theirs)}, and {must}"
                raise DataSetError(self.name, why, fix)

    @property
    def longest(self) -> int:
        """Steps of its longest transition."""
        return max((int(piece.max()) for piece in self.stored.pieces("n_steps")), default=1)

    def rows(self, row: np.dtype[Any]) -> Iterator[Columns]:
        """The rows as they are, oldest first, some megabytes at a time: the columns of `row` that
        they have."""
        names = [name for name in row.names or () if name in (self.stored.dtype.names or ())]
        size = max(1, _PIECE_BYTES // max(1, row.itemsize))
        for begin in range(0, self.length, size):
            places = np.arange(begin, min(begin + size, self.length))
            yield {name: self._column(name, places).astype(row[name].base) for name in names}

    def episodes(self) -> Iterator[RecordedEpisode]:
        """The episodes that its rows of one step were, as far as they are there."""
        observed = [name for name in self.stored.names if name.split("/")[0] == "obs"]
        for number, episode in enumerate(episodes(self.stored)):
            rows = episode.rows
            last = episode.rows[-1:]
            yield RecordedEpisode(
                number,
                {
                    name: np.concatenate(
                        [self.stored.take(name, rows), self.stored.take(f"next_{name}", last)]
                    )
                    for name in observed
                },
                self._column("action", rows),
                self.stored.take("reward", rows).astype(np.float64),
                bool(self.stored.take("terminated", last)[0]),
                bool(self.stored.take("truncated", last)[0]),
                self.stored.take(INTERVENED, rows) if INTERVENED in self.stored.names else None,
            )

    def _column(self, name: str, places: NDArray[np.int64]) -> NDArray[Any]:
        column = self.stored.take(name, places)
        if name == "action" and np.any(self._first_action):
            column = column - self._first_action
        return column


class NpzRows:
    """The rows of an exported ``.npz``; what is not compressed stays on the disk until it is used.

    Raises:
        DataSetError: it is torn, or holds something else than columns of rows.
    """

    def __init__(self, path: Path) -> None:
        with reading_data(str(path)), zipfile.ZipFile(path) as file:
            entries = [entry for entry in file.infolist() if entry.filename.endswith(".npy")]
            self._columns = {
                entry.filename.removesuffix(".npy"): _npy_array(file, entry) for entry in entries
            }
        fix = "name a file of `vedette export --what replay --format npz`"
        if "reward" not in self._columns or not self._columns["reward"].shape:
            raise DataSetError(str(path), "it has no column 'reward'", fix)
        self._length = len(self._columns["reward"])
        for name, column in self._columns.items():
            if column.shape[:1] != (self._length,):
                rows = f"{len(column):,} rows" if column.shape else "no rows"
                why = f"its column {name!r} has {rows}, and 'reward' has {self._length:,}"
                fix = f"leave {name!r} out of the file, or store {self._length:,} rows of it"
                raise DataSetError(str(path), why, fix)

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


def transitions(
    recorded: Iterator[RecordedEpisode],
    processor: StepProcessor,
    rewards: Callable[[NDArray[Any], NDArray[Any]], None],
    *,
    marks: bool,
) -> Iterator[Columns]:
    """The transitions that a step processor makes of episodes, as it makes an actor's.

    Args:
        recorded: `EPISODES_AT_ONCE` of them at a time go through the processor side by side.
        processor: made for `EPISODES_AT_ONCE` environments.
        rewards: writes what true rewards become in transitions.
        marks: steps have the column `INTERVENED`.
    """
    while group := _group(recorded):
        longest = max(map(len, group))
        lengths = np.array(
            [len(episode) for episode in group] + [0] * (EPISODES_AT_ONCE - len(group))
        )
        obs = _side_by_side([episode.obs for episode in group], longest + 1)
        action = _side_by_side([{"action": episode.action} for episode in group], longest)["action"]
        reward = np.zeros((longest, EPISODES_AT_ONCE), np.float32)
        for lane, episode in enumerate(group):
            rewards(episode.reward, reward[: len(episode), lane])
        ends = np.array([e.terminated for e in group] + [False] * (EPISODES_AT_ONCE - len(group)))
        cut = np.array(
            [e.truncated or not e.terminated for e in group]
            + [False] * (EPISODES_AT_ONCE - len(group))
        )
        intervened = np.zeros((longest, EPISODES_AT_ONCE), np.bool_)
        for lane, episode in enumerate(group):
            if episode.intervened is not None:
                intervened[: len(episode), lane] = episode.intervened
        for t in range(longest):
            last = lengths == t + 1
            following = {name: rows[t + 1] for name, rows in obs.items()}
            yield processor.process(
                Step(
                    obs={name: rows[t] for name, rows in obs.items()},
                    action=action[t],
                    reward=reward[t],
                    next_obs=following,
                    terminated=last & ends,
                    truncated=last & cut,
                    init_obs=following,
                    valid=lengths > t,
                    extra={INTERVENED: intervened[t]} if marks else {},
                )
            )
        yield processor.flush()


def _group(recorded: Iterator[RecordedEpisode]) -> list[RecordedEpisode]:
    """The next episodes that are put side by side: fewer where they are large."""
    group: list[RecordedEpisode] = []
    for episode in islice(recorded, EPISODES_AT_ONCE):
        group.append(episode)
        size = sum(column.nbytes for column in episode.obs.values())
        if size * EPISODES_AT_ONCE > _GROUP_BYTES:
            break
    return group


def _side_by_side(parts: list[Columns], steps: int) -> Columns:
    """Columns ``(steps, EPISODES_AT_ONCE, *shape)`` of columns ``(T, *shape)`` with fewer steps."""
    columns: Columns = {}
    for name, first in parts[0].items():
        columns[name] = np.zeros((steps, EPISODES_AT_ONCE, *first.shape[1:]), first.dtype)
        for lane, part in enumerate(parts):
            columns[name][: len(part[name]), lane] = part[name]
    return columns


def stack_newest(values: NDArray[Any], stack: int) -> NDArray[Any]:
    """Stacks of the newest observations, the first one repeated at the beginning, as Gymnasium's
    `FrameStackObservation` has them; of 0 the observations as they are."""
    if not stack:
        return values
    places = np.arange(len(values))[:, None] + np.arange(1 - stack, 1)
    stacked: NDArray[Any] = values[np.maximum(places, 0)]
    return stacked


def minari_folder(folder: Path) -> Path:
    """The folder that Minari reads, where this is one or holds one.

    Raises:
        FileNotFoundError: it is none.
    """
    for place in (folder, folder / "data"):
        if (place / "metadata.json").is_file() or (place / "main_data.hdf5").is_file():
            return place.absolute()
    raise FileNotFoundError(folder)


def open_npz(name: str, action: gym.Space[Any]) -> ReplayData:
    """An exported replay, whose discrete actions are those of the environment's own space."""
    return ReplayData(name, NpzRows(Path(name)), getattr(action, "start", 0))


def open_replay_rows(name: str, directory: Path) -> ReplayData:
    """The rows of another run's replay, which that run may still be writing."""
    return ReplayData(name, LiveRows(directory, locked=False))


def _npy_array(file: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    """A member of an npz: mapped where it lies as it is, else read. Nothing is unpickled."""
    with file.open(entry) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(member)
        if dtype.hasobject:
            name = entry.filename.removesuffix(".npy")
            why = f"its column {name!r} holds Python objects, which are never read"
            fix = f"leave {name!r} out of the file, or store it as numbers"
            raise DataSetError(str(file.filename), why, fix)
        if entry.compress_type != zipfile.ZIP_STORED or fortran or not np.prod(shape):
            with file.open(entry) as whole:
                return np.lib.format.read_array(whole, allow_pickle=False)
        head = member.tell()
        while member.read(_PIECE_BYTES):  # to the end, where zipfile compares the checksum
            pass
    path = Path(str(file.filename))
    with path.open("rb") as raw:
        raw.seek(entry.header_offset + 26)
        name_bytes, extra_bytes = np.frombuffer(raw.read(4), "<u2").tolist()
    begin = entry.header_offset + 30 + name_bytes + extra_bytes + head
    return np.memmap(path, dtype, "r", begin, shape)


def _follow(values: Any, leaf: ObservationColumn) -> Any:  # of any space
    for key in leaf.path:
        values = values[key]
    return values


def action_field_shape(data: Any) -> tuple[int, ...]:  # a minari.MinariDataset
    """The shape of one action of a data set."""
    return action_field(data.action_space)[2]


def _forms(leaves: tuple[ObservationColumn, ...], stack: int = 0) -> str:
    """The columns in a line; with `stack`, of one frame of what is stacked so often."""
    shapes = [
        leaf.shape[1:] if stack and leaf.shape[:1] == (stack,) else leaf.shape for leaf in leaves
    ]
    forms = zip(leaves, shapes, strict=True)
    return ", ".join(sorted(f"{leaf.name} {leaf.dtype} {shape}" for leaf, shape in forms))


def _column_form(dtype: np.dtype[Any]) -> str:
    """The form of a column of N rows."""
    return f"{dtype.base} ({', '.join(map(str, ['N', *dtype.shape]))}{'' if dtype.shape else ','})"


def _action_form(space: gym.Space[Any]) -> str:
    if isinstance(space, gym.spaces.Box):
        bounds = f"{np.round(space.low, 5).tolist()} to {np.round(space.high, 5).tolist()}"
        return f"{action_field(space)[1]} {space.shape} of {bounds}"
    return str(space)


def _other(name: str, what: str, theirs: str, ours: str) -> DataSetError:
    why = f"its {what} are {theirs}, and the environment's are {ours}"
    return DataSetError(name, why, "name a data set of this environment")


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
            text = "it is no npz, or its end is missing"
        why = f"it cannot be read ({text[:200]})"
        raise DataSetError(name, why, "name a whole data set") from error
