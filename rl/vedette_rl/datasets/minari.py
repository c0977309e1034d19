"""Episodes as a Minari dataset (https://minari.farama.org), played now or from a replay: needs the
minari extra."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from vedette_rl.core.columns import ACTOR, INTERVENED, MANAGER
from vedette_rl.core.exact_cast import cast_rounded
from vedette_rl.envs import EnvConfig, make_env
from vedette_rl.envs.layout import ActionConverter, find_intervention
from vedette_rl.envs.spaces import executed_range, first_outside, observation_columns
from vedette_rl.errors import DataSetError, EnvironmentFaultError, ExportError
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.export import LiveRows, StoredRows
from vedette_rl.storage.atomic_files import NO_ROOM, allocate_file
from vedette_rl.storage.write_errors import describe_write_error

_PACKAGES = {"minari": "minari", "h5py": "h5py", "PIL": "pillow"}

# What HDF5 takes of the disk, as measured: chunks of up to twice an array, and their index.
_INDEX = 8 << 10
_GROUP = 64 << 20  # to open the file for each of many episodes takes several times as long
_LEFT_FREE = 128 << 10  # for the file's own index, which grows in steps, and for the metadata


def missing_packages() -> list[str]:
    """The packages of the extra that are not installed."""
    return [name for module, name in _PACKAGES.items() if not importlib.util.find_spec(module)]


class MinariWriter:
    """Writes a dataset that `minari.MinariDataset(directory)` reads, an episode at a time.

    Args:
        directory: made, and empty.
        observation_space, action_space: the environment's own.
        spec: Gymnasium's spec to make the environment again; None: it cannot be written.
        name: the dataset's, such as ``my-run-v0``.
        about: more of its metadata, of JSON's types.

    Raises:
        DataSetError: a key of a space is no name in its file.
    """

    def __init__(
        self,
        directory: Path,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        spec: EnvSpec | None,
        name: str,
        about: Mapping[str, Any],
    ) -> None:
        import minari
        from minari.dataset.minari_storage import MinariStorage

        for part, space in (("observation", observation_space), ("action", action_space)):
            _check_keys(name, part, space)
        self.observation_space = observation_space
        self.action_space = action_space
        self._name = name
        self._room = directory / ".room"
        self._storage = MinariStorage.new(
            directory.absolute(),  # a relative one it joins to itself
            observation_space=self.observation_space,
            action_space=self.action_space,
            env_spec=spec,
            data_format="hdf5",
            jpeg_encoding=False,  # it loses what it cannot see
        )
        facts = {"dataset_id": name, "minari_version": minari.__version__}
        self._storage.update_metadata({**facts, "algorithm_name": "vedette", **about})

    def describe(self, about: Mapping[str, Any]) -> None:
        """Set more of its metadata."""
        self._storage.update_metadata(dict(about))

    def write(self, played: Iterable[PlayedEpisode]) -> None:
        """Add episodes.

        Raises:
            DataSetError: the disk has no room for one; those before it are whole.
        """
        from minari.data_collector import EpisodeBuffer

        for group, need in _groups(played):
            self._require_room(need)
            self._storage.update_episodes(
                EpisodeBuffer(
                    seed=episode.seed,
                    observations=episode.observations,
                    actions=episode.actions,
                    rewards=episode.rewards,
                    terminations=episode.terminations,
                    truncations=episode.truncations,
                    infos=_marks(episode.intervened),
                )
                for episode in group
            )

    def _require_room(self, need: int) -> None:
        """Refuse what the disk has no room for: a write that fails within HDF5 ends the process."""
        try:
            allocate_file(self._room, need, b"", durable=False)
        except OSError as e:
            if e.errno not in NO_ROOM:
                raise
            words = describe_write_error(e, self._room)
            why = f"no room for another {format_bytes(need)}: {words}"
            raise DataSetError(self._name, why, "make room on its disk") from e
        self._room.unlink()


def _check_keys(name: str, part: str, space: gym.Space[Any]) -> None:
    """Check that HDF5 takes the keys of a space as names: a ``/`` would make groups of one.

    Raises:
        DataSetError: names the first that is none.
    """
    if isinstance(space, gs.Dict):
        for key in space.spaces:
            if not _is_name(key):
                why = (
                    f"the key {key!r} of its {part}s cannot be written to HDF5, where a name is a "
                    "text that has no '/' and is neither empty nor '.'"
                )
                fix = "rename it by a wrapper in env.wrappers; a replay can be exported as npz"
                raise DataSetError(name, why, fix)
    if isinstance(space, gs.Dict | gs.Tuple):
        for inner in space.spaces.values() if isinstance(space, gs.Dict) else space.spaces:
            _check_keys(name, part, inner)


def _is_name(key: object) -> bool:
    if not isinstance(key, str) or key in ("", ".") or "/" in key or "\0" in key:
        return False
    try:
        key.encode()
    except UnicodeEncodeError:  # a surrogate
        return False
    return True


def _groups(played: Iterable[PlayedEpisode]) -> Iterator[tuple[list[PlayedEpisode], int]]:
    """Episodes that are written together, with the bytes that this takes of the disk at most."""
    group = list[PlayedEpisode]()
    need = _LEFT_FREE
    for episode in played:
        group.append(episode)
        parts = (episode.observations, episode.actions, episode.rewards, episode.truncations)
        need += sum(2 * array.nbytes + _INDEX for array in _arrays(parts))
        if need >= _GROUP:
            yield group, need
            group = []
            need = _LEFT_FREE
    if group:
        yield group, need


def _arrays(values: Any) -> Iterator[NDArray[Any]]:
    """The arrays of values that are composed as a space is."""
    if not isinstance(values, dict | tuple):
        yield np.asarray(values)
        return
    for part in values.values() if isinstance(values, dict) else values:
        yield from _arrays(part)


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """An episode of T steps, as Minari stores it.

    Args:
        observations: values of the space's form, T + 1 of each array.
        actions: the environment's own.
        seed: the seed that it began with; None: not known.
        intervened: flags of the steps in which a person acted; None: not known.
    """

    observations: Any
    actions: Any
    rewards: list[float]
    terminations: list[bool]
    truncations: list[bool]
    seed: int | None = None
    intervened: list[bool] | None = None


def _marks(intervened: list[bool] | None) -> dict[str, Any]:
    """The infos of an episode, as Minari has them: that of its reset comes first."""
    return {} if intervened is None else {INTERVENED: np.array([False, *intervened])}


_OBSERVATION = "an observation"
_ACTION = "an executed action"


class EpisodeRecorder(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps the episode that is played, with the actions that were executed.

    ::

        env = EpisodeRecorder(env)
        env.reset(seed=7)
        while not over: env.step(action)
        env.episode()

    Raises:
        EnvironmentFaultError: (`step`) its info says that a person acted, and not how.
    """

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._seed = seed
        self._seen = [copy.deepcopy(obs)]
        self._actions: list[Any] = []
        self._intervened: list[bool] = []
        self.rewards: list[float] = []
        self._ends = False, False
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        executed = find_intervention(info) if info else None
        self._seen.append(copy.deepcopy(obs))  # an environment may write the next one into it
        self._actions.append(copy.deepcopy(action if executed is None else executed))
        self._intervened.append(executed is not None)
        self.rewards.append(float(reward))
        self._ends = bool(terminated), bool(truncated)
        return obs, reward, *self._ends, info

    def episode(self) -> PlayedEpisode:
        """The episode so far: one that has not ended is truncated with its last step.

        Raises:
            EnvironmentFaultError: an observation or an executed action is none of its space; those
                in a Box of floats may be outside.
        """
        terminated, truncated = self._ends
        before = [False] * (len(self.rewards) - 1)
        return PlayedEpisode(
            self._stacked(_OBSERVATION, self.observation_space, self._seen),
            self._stacked(_ACTION, self.action_space, self._actions),
            self.rewards,
            [*before, terminated],
            [*before, truncated or not terminated],
            self._seed,
            self._intervened,
        )

    def _stacked(self, what: str, space: gym.Space[Any], values: Sequence[Any]) -> Any:
        """Values of a space, composed as it is; `what` they are, for an error."""
        match space:
            case gs.Dict():
                inner = space.spaces.items()
                return {
                    key: self._stacked(what, part, [value[key] for value in values])
                    for key, part in inner
                }
            case gs.Tuple():
                places = enumerate(space.spaces)
                return tuple(
                    self._stacked(what, part, [value[i] for value in values]) for i, part in places
                )
            case gs.Box() | gs.Discrete() | gs.MultiDiscrete() | gs.MultiBinary():
                return self._cast(what, space, values)
            case _:
                return np.asarray(values, space.dtype)

    def _cast(self, what: str, space: gym.Space[Any], values: Sequence[Any]) -> NDArray[Any]:
        """Values of a space that is one array, ``(T, *shape)``, in its dtype."""
        dtype = np.dtype(space.dtype)
        try:
            array = cast_rounded(np.asarray(values), dtype)
        except ValueError as error:  # rows of several lengths, too
            raise self._fault(what, str(error), space) from error
        if array.shape[1:] != space.shape:
            raise self._fault(what, f"shape {array.shape[1:]}", space)
        is_looked_at = what == _ACTION or not isinstance(space, gs.Box)
        known = executed_range(space) if is_looked_at else None
        if known is not None and (outside := first_outside(array, *known)):
            raise self._fault(what, outside, space)
        return array

    def _fault(self, what: str, why: str, space: gym.Space[Any]) -> EnvironmentFaultError:
        return EnvironmentFaultError(str(self.unwrapped), f"{what} of {space} has {why}")


def write_minari(
    directory: Path, live: LiveRows, env: EnvConfig, name: str, about: Mapping[str, Any]
) -> int:
    """Write a replay as a dataset that `minari.MinariDataset(directory)` reads; how many episodes.

    Actions and rewards are the environment's own; rewards that were clipped are at their bound,
    `env.reward_clip` by the scale. Where an episode continues after its last row in the replay,
    that row is marked truncated.

    Args:
        directory: made, and empty.
        live: the replay's rows.
        env: the environment that was played.
        name: the dataset's, such as ``my-run-v0``.
        about: more of its metadata.

    Raises:
        ExportError: transitions span several steps, so they are no steps of an episode.
    """
    if (live.column("n_steps") > 1).any():
        why = "its transitions span several steps; train with agent.n_step=1"
        raise ExportError("minari", why)
    if env.observation is not None and env.action is not None:  # declared: it need not be here
        spaces = env.observation.build(), env.action.build()
        writer = MinariWriter(directory, *spaces, None, name, about)
    else:
        with closing(make_env(env)) as one:
            spaces = (one.observation_space, one.action_space)
            spec = written_spec(one, env)
        writer = MinariWriter(directory, *spaces, spec, name, about)
    recorded = episodes(live)
    spaces = writer.observation_space, writer.action_space
    writer.write(_played(live, recorded, *spaces, env.reward_scale))
    return len(recorded)


def _played(
    live: LiveRows,
    recorded: list[Episode],
    observation: gym.Space[Any],
    action: gym.Space[Any],
    reward_scale: float,
) -> Iterator[PlayedEpisode]:
    for episode in recorded:
        rows = episode.rows
        truncated = live.take("truncated", rows)
        truncated[-1] |= not episode.is_whole
        yield PlayedEpisode(
            observations=_observations(live, rows, observation),
            actions=ActionConverter(action, len(rows)).to_environment(live.take("action", rows)),
            rewards=(live.take("reward", rows) / reward_scale).tolist(),
            terminations=live.take("terminated", rows).tolist(),
            truncations=truncated.tolist(),
            intervened=live.take(INTERVENED, rows).tolist() if INTERVENED in live.names else None,
        )


def _observations(live: LiveRows, rows: NDArray[np.int64], space: gym.Space[Any]) -> Any:
    """Observations before each step and after the last, composed as the space is."""
    values = {
        leaf.path: np.concatenate(
            [live.take(leaf.name, rows), live.take(f"next_{leaf.name}", rows[-1:])]
        )
        for leaf in observation_columns(space)
    }
    return _composed(space, (), values)


def _composed(space: gym.Space[Any], path: tuple[Any, ...], values: dict[Any, Any]) -> Any:
    match space:
        case gym.spaces.Dict():
            return {key: _composed(s, (*path, key), values) for key, s in space.spaces.items()}
        case gym.spaces.Tuple():
            inner = enumerate(space.spaces)
            return tuple(_composed(s, (*path, place), values) for place, s in inner)
        case _:
            return values[path]


def written_spec(env: gym.Env[Any, Any], config: EnvConfig) -> EnvSpec | None:
    """The specification to make the environment again; None where it cannot be written."""
    if config.wrappers or config.frame_stack or env.spec is None:
        return None
    try:
        env.spec.to_json()
    except (TypeError, ValueError):
        return None
    return env.spec


# A replay holds the transitions of many environments in the order in which they came. Two rows
# follow one another where one actor made both and the first one's successor is what the second
# one saw.

_Key = tuple[int, int, bytes]  # manager, actor, what was seen


@dataclass(frozen=True, slots=True)
class Episode:
    """Rows that follow one another, by their places among the live rows.

    Args:
        rows: ``(T,)``, in order.
        is_whole: the last one ended the episode; else what came after is not in the replay.
    """

    rows: NDArray[np.int64]
    is_whole: bool


def episodes(live: StoredRows) -> list[Episode]:
    """The episodes of a replay of one-step transitions, in the order of their first rows.

    The replay's oldest rows may begin, and its newest end, in the midst of one.
    """
    follows = np.full(len(live), -1, np.int64)
    is_first = np.ones(len(live), np.bool_)
    open_ends: dict[_Key, deque[int]] = defaultdict(deque)
    over = live.column("terminated") | live.column("truncated")
    makers = [
        live.column(name).tolist() if name in live.names else repeat(0, len(live))
        for name in (MANAGER, ACTOR)
    ]
    seen = zip(
        zip(*makers, strict=True), _digests(live, "obs"), _digests(live, "next_obs"), strict=True
    )
    for row, ((manager, actor), obs, next_obs) in enumerate(seen):
        waiting = open_ends.get((manager, actor, obs))
        if waiting:
            follows[waiting.popleft()] = row
            is_first[row] = False
        if not over[row]:
            open_ends[manager, actor, next_obs].append(row)
    return [_episode(int(first), follows, over) for first in np.flatnonzero(is_first)]


def _episode(first: int, follows: NDArray[np.int64], over: NDArray[np.bool_]) -> Episode:
    rows = [first]
    row = int(follows[first])
    while row >= 0:
        rows.append(row)
        row = int(follows[row])
    return Episode(np.array(rows), bool(over[rows[-1]]))


def _digests(live: StoredRows, part: str) -> Iterator[bytes]:
    """A digest of each row's observation, over all its columns."""
    names = [name for name in live.names if name == part or name.startswith(f"{part}/")]
    for pieces in zip(*(_values(live, name) for name in names), strict=True):
        yield hashlib.blake2b(b"".join(pieces), digest_size=16).digest()


def _values(live: StoredRows, name: str) -> Iterator[bytes]:
    for piece in live.pieces(name):
        for value in piece:
            yield value.tobytes()
