"""A replay as a Minari dataset (https://minari.farama.org): needs the minari extra."""

from __future__ import annotations

import hashlib
import importlib.util
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import ACTOR, MANAGER
from vedette_rl.envs import EnvConfig, make_env
from vedette_rl.envs.layout import ActionConverter
from vedette_rl.envs.spaces import observation_columns
from vedette_rl.errors import ExportError
from vedette_rl.replay.export import LiveRows, StoredRows

_PACKAGES = {"minari": "minari", "h5py": "h5py", "PIL": "pillow"}


def missing_packages() -> list[str]:
    """The packages of the extra that are not installed."""
    return [name for module, name in _PACKAGES.items() if not importlib.util.find_spec(module)]


def write_minari(directory: Path, live: LiveRows, env: EnvConfig, name: str) -> int:
    """Write a dataset that `minari.MinariDataset(directory)` reads; how many episodes.

    Actions are the environment's own. Where an episode goes on after its last row in the replay,
    that row is marked truncated.

    Args:
        directory: made, and empty.
        live: the replay's rows.
        env: what was played.
        name: the dataset's, such as ``my-run-v0``.

    Raises:
        ExportError: transitions span several steps, so they are no steps of an episode.
    """
    import minari
    from minari.dataset.minari_storage import MinariStorage

    if (live.column("n_steps") > 1).any():
        raise ExportError("its transitions span several steps; train with agent.n_step=1")
    one = make_env(env)
    try:
        storage = MinariStorage.new(
            directory.absolute(),  # a relative one it joins to itself
            observation_space=one.observation_space,
            action_space=one.action_space,
            env_spec=_spec(one, env),
            data_format="hdf5",
            jpeg_encoding=False,  # it loses what it cannot see
        )
    finally:
        one.close()
    storage.update_metadata(
        {"dataset_id": name, "minari_version": minari.__version__, "algorithm_name": "vedette"}
    )
    found = episodes(live)
    # the environment's own rewards, unless clipping has lost them
    scale = 1.0 if env.reward_clip else env.reward_scale
    storage.update_episodes(_buffers(live, found, one.observation_space, one.action_space, scale))
    return len(found)


def _buffers(
    live: LiveRows,
    found: list[Episode],
    observation: gym.Space[Any],
    action: gym.Space[Any],
    reward_scale: float,
) -> Iterator[Any]:  # minari.data_collector.EpisodeBuffer
    from minari.data_collector import EpisodeBuffer

    for number, episode in enumerate(found):
        rows = episode.rows
        truncated = live.take("truncated", rows)
        truncated[-1] |= not episode.is_whole
        yield EpisodeBuffer(
            id=number,
            observations=_observations(live, rows, observation),
            actions=ActionConverter(action, len(rows)).to_environment(live.take("action", rows)),
            rewards=(live.take("reward", rows) / reward_scale).tolist(),
            terminations=live.take("terminated", rows).tolist(),
            truncations=truncated.tolist(),
            infos=None,
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


def _spec(env: gym.Env[Any, Any], config: EnvConfig) -> Any:  # an EnvSpec
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
    rows, row = [first], int(follows[first])
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
