"""Reads data sets into transitions: Minari's, exported replays, and replays of other runs.

::

    data = MinariData("minari:ID", observation_space, action_space)    # or a folder
    for columns in transitions(data.episodes(), processor, rewards, marks=False): ...

    rows = ReplayData("FILE.npz", FileRows("FILE.npz", read_column_file(path)), first_action=0)
    rows.check(row_dtype, optional=frozenset())
    for columns in rows.rows(row_dtype): ...      # or transitions of rows.episodes()

A *Minari* data set holds episodes with the environment's own actions and rewards. A *replay* holds
rows: transitions, of which those of one step can be put together to episodes again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step, StepProcessor
from vedette_rl.core.columns import ACTOR, INTERVENED, MANAGER
from vedette_rl.core.exact_cast import InexactCastError, cast_exactly, may_be_cast
from vedette_rl.core.step_keys import StepKeys
from vedette_rl.datasets.cast_rows import CastRows
from vedette_rl.datasets.minari import episodes, missing_packages
from vedette_rl.datasets.renaming import RenamedRows, Renaming
from vedette_rl.datasets.torn_data import reading_data
from vedette_rl.envs.spaces import ObservationColumn, action_field, observation_columns
from vedette_rl.errors import DataSetError, SpaceLayoutError
from vedette_rl.replay.export import LiveRows, StoredRows

MINARI = "minari:"
"""Begins the name of a Minari data set on this host."""

EPISODES_AT_ONCE = 32
"""Episodes that are put through a step processor side by side."""

_GROUP_BYTES = 256 << 20
_PIECE_BYTES = 16 << 20

COLUMNS_PAGE = "docs/how-to/start-from-demonstrations.md"
"""The page that says which columns a data set has."""

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
        rename: our names of its observations' parts, by its own.

    Raises:
        DataSetError: it is not there, torn, or of other spaces.
    """

    left_out = 0
    """Steps that are not read: none."""

    def __init__(
        self,
        name: str,
        observation: gym.Space[Any],
        action: gym.Space[Any],
        stack: int = 0,
        rename: Mapping[str, str] = MappingProxyType({}),
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
        self._adopt_spaces(observation, action, stack, rename)

    def _adopt_spaces(
        self,
        observation: gym.Space[Any],
        action: gym.Space[Any],
        stack: int,
        rename: Mapping[str, str],
    ) -> None:
        """Compare the spaces with the environment's, and find out what must be stacked."""
        try:
            self._leaves = observation_columns(self._data.observation_space)
        except SpaceLayoutError as e:
            raise DataSetError(self.name, str(e), "name another data set") from e
        self._stack = 0
        wanted = observation_columns(observation)
        renaming = Renaming(self.name, rename, [leaf.name for leaf in wanted])
        renaming.check([leaf.name for leaf in self._leaves])
        self._leaves = tuple(replace(leaf, name=renaming.ours(leaf.name)) for leaf in self._leaves)
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
            whole = self._cast(number, leaf.name, values, leaf.dtype)
            obs[leaf.name] = stack_newest(whole, self._stack)
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
            marks = np.asarray(intervened)[-steps:]
            intervened = self._cast(number, INTERVENED, marks, np.dtype(np.bool_))
            self._check_shape(number, INTERVENED, intervened, (steps,))
        return RecordedEpisode(
            number,
            obs,
            self._cast(number, "action", action - self._start, self._action_dtype),
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

    def _cast(
        self, number: int, name: str, values: NDArray[Any], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        try:
            return cast_exactly(values, dtype)
        except InexactCastError as error:
            raise self._broken(number, f"step {error.row}: its {name!r} has {error}") from error

    def _broken(self, number: int, why: str) -> DataSetError:
        return DataSetError(self.name, f"episode {number}: {why}", "repair it or leave it out")


class ReplayData:
    """Rows of an exported replay, of a file of the same columns, or of another run's replay.

    Args:
        name: the data set's name, as the user gave it.
        stored: the rows.
        first_action: the first discrete action in these rows.
        renaming: our names of its columns; None: it has them.
    """

    left_out = 0
    """Steps that are not read: none."""

    def __init__(
        self,
        name: str,
        stored: StoredRows,
        first_action: Any = 0,
        renaming: Renaming | None = None,
    ) -> None:
        self.name = name
        self.live = stored if isinstance(stored, LiveRows) else None
        """The rows of a replay that may be written meanwhile."""
        self.stored = RenamedRows(stored, renaming) if renaming else stored
        self._first_action = first_action
        self.length = len(stored)

    def check(self, row: np.dtype[Any], optional: frozenset[str]) -> None:
        """Check that the rows have these columns, and read them as such from now on.

        Args:
            row: the columns of a transition.
            optional: names of columns that may be missing.

        Raises:
            DataSetError: names all that are missing, and all of another dtype or shape.
        """
        check_columns(self.name, self.stored.dtype, row, optional | {"n_steps"})
        self.stored = CastRows(self.name, self.stored, row)

    @property
    def longest(self) -> int:
        """Steps of its longest transition."""
        return max((int(piece.max()) for piece in self.stored.pieces("n_steps")), default=1)

    @property
    def is_in_order(self) -> bool:
        """True if nobody says who made its rows: an episode's stand one after the other."""
        return not {MANAGER, ACTOR} & {*self.stored.names}

    def check_borders(self) -> None:
        """Check that each row ends an episode, or is followed by the row that saw its successor.

        Raises:
            DataSetError: names the first that does not.
        """
        if len(open_rows := self.open_rows()):
            row = int(open_rows[0])
            count = f" (so in {len(open_rows):,} rows)" if len(open_rows) > 1 else ""
            why = (
                f"row {row:,} is neither terminated nor truncated, and the following one did not "
                f"see its next_obs{count}"
            )
            fix = "set truncated where an episode is cut, and store its rows one after the other"
            raise DataSetError(self.name, why, fix)

    def open_rows(self) -> NDArray[np.int64]:
        """The rows that end no episode, and whose successor the following row did not see."""
        rows = np.flatnonzero(unfollowed(self.stored, self._observed) & ~self._over())
        return rows[rows < self.length - 1]  # the last one is cut by the file's end

    @property
    def _observed(self) -> list[str]:
        names = {*self.stored.names}  # an `obs/...` without a successor is a column of the user's
        return [n for n in names if n.split("/")[0] == "obs" and f"next_{n}" in names]

    def _over(self) -> NDArray[np.bool_]:
        over: NDArray[np.bool_] = self.stored.column("terminated") | self.stored.column("truncated")
        return over

    def _rows_of_episodes(self) -> Iterator[NDArray[np.int64]]:
        if not self.is_in_order:
            yield from (episode.rows for episode in episodes(self.stored))
            return
        over = self._over()
        over[-1:] = True
        first = 0
        for last in np.flatnonzero(over).tolist():
            yield np.arange(first, last + 1)
            first = last + 1

    def rows(self, row: np.dtype[Any]) -> Iterator[Columns]:
        """The rows as they are, oldest first, some megabytes at a time: the columns of `row` that
        they have."""
        names = [name for name in row.names or () if name in (self.stored.dtype.names or ())]
        size = max(1, _PIECE_BYTES // max(1, row.itemsize))
        for begin in range(0, self.length, size):
            places = np.arange(begin, min(begin + size, self.length))
            yield {name: self._column(name, places) for name in names}

    def episodes(self) -> Iterator[RecordedEpisode]:
        """The episodes that its rows of one step were, as far as they are there."""
        observed = self._observed
        for number, rows in enumerate(self._rows_of_episodes()):
            last = rows[-1:]
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


def unfollowed(stored: StoredRows, observed: Collection[str]) -> NDArray[np.bool_]:
    """Flags ``(N,)`` of the rows whose successor the following row did not see; the last is one.

    Args:
        stored: rows at rest.
        observed: their columns ``obs...``.
    """
    breaks = np.zeros(len(stored), np.bool_)
    breaks[-1:] = True
    for name in observed:
        at_once = max(1, _PIECE_BYTES // max(1, stored.dtype[name].itemsize))
        for begin in range(0, len(stored) - 1, at_once):
            rows = np.arange(begin, min(begin + at_once, len(stored) - 1))
            after = stored.take(f"next_{name}", rows)
            seen = stored.take(name, rows + 1)
            differs = (after != seen) & ((after == after) | (seen == seen))  # nan is nan
            breaks[rows] |= differs.reshape(len(rows), -1).any(1)
    return breaks


def transitions(
    recorded: Iterator[RecordedEpisode],
    processor: StepProcessor,
    rewards: Callable[[NDArray[Any], NDArray[Any]], None],
    *,
    marks: bool,
    has_keys: bool = False,
) -> Iterator[Columns]:
    """The transitions that a step processor makes of episodes, as it makes an actor's.

    Args:
        recorded: `EPISODES_AT_ONCE` of them at a time go through the processor side by side.
        processor: made for `EPISODES_AT_ONCE` environments.
        rewards: writes what true rewards become in transitions.
        marks: steps have the column `INTERVENED`.
        has_keys: steps have the columns of `SEQUENCE_KEYS`.
    """
    keys = StepKeys(EPISODES_AT_ONCE, 0)
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
            extra: Columns = {INTERVENED: intervened[t]} if marks else {}
            valid = lengths > t
            if has_keys:
                extra |= keys.of_step(np.full(EPISODES_AT_ONCE, t == 0), valid)
            yield processor.process(
                Step(
                    obs={name: rows[t] for name, rows in obs.items()},
                    action=action[t],
                    reward=reward[t],
                    next_obs=following,
                    terminated=last & ends,
                    truncated=last & cut,
                    init_obs=following,
                    valid=valid,
                    extra=extra,
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


def check_columns(
    name: str,
    found: np.dtype[Any],
    wanted: np.dtype[Any],
    optional: Collection[str] = (),
    called: Callable[[str], str] = str,
) -> None:
    """Check that a data set has the columns of a row.

    Args:
        name: the data set's name, as the user gave it.
        found: what it has, by our names.
        wanted: the row.
        optional: names of columns that may be missing.
        called: the data set's names of our columns.

    Raises:
        DataSetError: names all that are missing, and all of another form.
    """
    has = found.names or ()
    missing: list[str] = []
    wrong: list[str] = []
    for column in wanted.names or ():
        if column not in has:
            if column not in optional:
                missing.append(repr(called(column)))
            continue
        ours, theirs = wanted[column], found[column]
        if ours.shape != theirs.shape or not may_be_cast(theirs.base, ours.base):
            of_spaces = column.split("/")[0] in _OF_SPACES
            must = "the environment's is" if of_spaces else "it must be"
            form = f"{_column_form(theirs)}, and {must} {_column_form(ours)}"
            wrong.append(f"its column {called(column)!r} is {form}")
    if missing:
        several = "s" if len(missing) > 1 else ""
        there = ", ".join(dict.fromkeys(repr(called(column)) for column in has)) or "none"
        wrong.insert(0, f"it has no column{several} {', '.join(missing)} (it has {there})")
    if wrong:
        fix = f"store it so ({COLUMNS_PAGE} has all columns), or name another data set"
        if missing:
            fix = f"{COLUMNS_PAGE} has all columns; other names: replay.sources.NAME.rename"
        raise DataSetError(name, ", ".join(wrong), fix)


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
