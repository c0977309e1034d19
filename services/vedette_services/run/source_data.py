"""The data sets of a run's sources: opened, checked against the run, and written into rings."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_protocol.errors import SchemaError
from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns, RowColumn
from vedette_rl.core.columns import (
    ACTOR,
    EPOCH,
    INTERVENED,
    MANAGER,
    REWARD_CLIP,
    REWARD_SCALE,
    SEQUENCE_KEYS,
    VERSION,
)
from vedette_rl.datasets.column_files import FileRows, read_column_file
from vedette_rl.datasets.d4rl import D4rlData, has_d4rl_names
from vedette_rl.datasets.data_sets import (
    EPISODES_AT_ONCE,
    MINARI,
    MinariData,
    RecordedEpisode,
    ReplayData,
    minari_folder,
    transitions,
)
from vedette_rl.datasets.file_rewards import own_rewards
from vedette_rl.datasets.lerobot import LeRobotData, is_lerobot
from vedette_rl.datasets.renaming import Renaming
from vedette_rl.datasets.robomimic import RobomimicData, is_robomimic
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.layout import RewardTransform
from vedette_rl.envs.make import environment_action_space, make_vector_environment
from vedette_rl.envs.spaces import ElementBounds, Spaces, column_bounds, transition_dtype
from vedette_rl.errors import DataSetError
from vedette_rl.replay.budget import ReplaySpace, replay_space
from vedette_rl.replay.config import SourceConfig
from vedette_rl.replay.export import LiveRows
from vedette_rl.replay.manifest import MANIFEST, read_manifest
from vedette_rl.replay.prioritized import TD_ERROR
from vedette_rl.replay.ring import RingWriter
from vedette_rl.steps.registry import make_step_processor, prepare_steps
from vedette_services.config.changes import changed_settings
from vedette_services.config.loading import config_from_table, read_toml
from vedette_services.config.run_config import RunConfig
from vedette_services.run.replay_layout import (
    check_rows,
    configured_columns,
    ring_dtype,
    saved_replay_directory,
)

_GUARD_BYTES = 16 << 20
_ROUNDING = 1e-5
"""By which actions may pass the bounds of a Box, of its width, by rounding."""
_CHECKED_BYTES = 256 << 20
_RETURNS_OF_ROWS = 200_000
"""Rows of a replay, beyond which its episodes are not put together for their returns alone."""


@dataclass(frozen=True, slots=True)
class OpenedData:
    """A data set that fits the run.

    Args:
        as_rows: its rows are taken as they are; else its episodes go through a step processor.
        raw_rewards: its rewards are the environment's, and are scaled and clipped as an actor's.
        remark: what whoever learns from them should know; "" for nothing.
    """

    data: MinariData | LeRobotData | RobomimicData | D4rlData | ReplayData
    as_rows: bool
    raw_rewards: bool
    remark: str = ""


def open_data(config: RunConfig, spaces: Spaces, source: SourceConfig) -> OpenedData:
    """Open a data set and check its form.

    Raises:
        DataSetError: it does not fit.
    """
    data = source.data
    path = Path(data)
    replay = _replay_of(path)
    if data.startswith(MINARI) or (path.is_dir() and replay is None):
        _check_folder(data)
        kind = LeRobotData if is_lerobot(path) else MinariData
        return _open_episodes(config, spaces, source, kind)
    if replay is not None:
        row = transition_dtype(spaces, _columns(config, spaces))
        renaming = Renaming(data, source.rename, row.names or ())
        rows = ReplayData(data, LiveRows(replay, locked=False), renaming=renaming)
        return _open_rows(config, row, rows, same=_check_same_samples(config, data, path))
    if not path.is_file():
        raise DataSetError(data, "there is no such file or folder", "name one that is there")
    if is_robomimic(path):
        return _open_episodes(config, spaces, source, RobomimicData)
    return _open_file(config, spaces, source)


def _open_episodes(
    config: RunConfig,
    spaces: Spaces,
    source: SourceConfig,
    kind: type[MinariData] | type[LeRobotData] | type[RobomimicData],
) -> OpenedData:
    _refuse_declared(config, spaces, source.data)
    action = environment_action_space(config.env)
    found = kind(source.data, spaces.observation, action, config.env.frame_stack, source.rename)
    return OpenedData(found, as_rows=False, raw_rewards=True)


def _refuse_declared(config: RunConfig, spaces: Spaces, data: str) -> None:
    """Refuse a data set of episodes where an agent declares columns, which none has."""
    if declared := agent_kind(config.agent.name).columns(config.agent, spaces):
        why = f"it has no column {declared[0].name!r}, which agent {config.agent.name} declares"
        raise DataSetError(data, why, "name an exported replay, or another agent")


def _open_file(config: RunConfig, spaces: Spaces, source: SourceConfig) -> OpenedData:
    """Open a file of columns: ours, or those by D4RL's names."""
    data = source.data
    action = environment_action_space(config.env)
    row = transition_dtype(spaces, _columns(config, spaces))
    renaming = Renaming(data, source.rename, row.names or ())
    columns = renaming.rename(read_column_file(Path(data)))
    if has_d4rl_names(columns):
        _refuse_declared(config, spaces, data)
        episodes = D4rlData(data, columns, spaces.observation, action, config.env.frame_stack)
        return OpenedData(episodes, as_rows=False, raw_rewards=True)
    env = config.env
    columns, raw = own_rewards(data, columns, scale=env.reward_scale, clip=env.reward_clip)
    rows = ReplayData(data, FileRows(data, columns), getattr(action, "start", 0))
    opened = _open_rows(config, row, rows, same=_of_one_step(config))
    remark = (
        "" if {REWARD_SCALE, REWARD_CLIP} & columns.keys() else _remark_on_rewards(env, raw=raw)
    )
    return replace(opened, raw_rewards=raw, remark=remark)


def _remark_on_rewards(env: EnvConfig, *, raw: bool) -> str:
    """Describe what becomes of the rewards of a file that does not say what was done to them."""
    done = f"env.reward_scale={env.reward_scale:g}" if env.reward_scale != 1.0 else ""
    if env.reward_clip:
        done = f"{done} and " * bool(done) + f"env.reward_clip={env.reward_clip:g}"
    if not done:
        return ""
    if raw:
        return (
            f"its rewards are taken for the environment's own: {done} applies to them as to those "
            f"of actors (columns {REWARD_SCALE} and {REWARD_CLIP} say otherwise)"
        )
    return (
        "an earlier release has exported it: its rewards are taken as they are, as its run scaled "
        f"and clipped them (this one has {done}); export it again to have that checked"
    )


def _open_rows(
    config: RunConfig, row: np.dtype[Any], rows: ReplayData, *, same: bool
) -> OpenedData:
    """Check the rows of a replay.

    Args:
        same: they are samples of this run as they are.
    """
    names = rows.stored.names
    if config.replay.sequence and any(key.name not in names for key in SEQUENCE_KEYS):
        why = "it does not say which of its rows follow one another"
        fix = "name a run from which sequences are drawn, or a data set of episodes"
        raise DataSetError(rows.name, why, fix)
    rows.check(row, frozenset({INTERVENED}))
    if (_of_one_step(config) or not same) and rows.longest > 1:
        why = "its transitions span several steps"
        fix = "name the directory of a run with the same settings, or one with agent.n_step=1"
        raise DataSetError(rows.name, why, fix)
    # Rows with keys are single steps, in which no setting of several counts.
    as_rows = same or bool(config.replay.sequence)
    return OpenedData(rows, as_rows=as_rows, raw_rewards=False)


def _check_folder(data: str) -> None:
    """Check that a folder is one of those whose episodes are read.

    Raises:
        DataSetError: it is none.
    """
    if data.startswith(MINARI) or is_lerobot(Path(data)):
        return
    try:
        minari_folder(Path(data))
    except FileNotFoundError as e:
        why = "this folder is no data set of a kind that is read"
        fix = "name a Minari data set's folder, a LeRobotDataset's, a run's directory, or a file"
        raise DataSetError(data, why, fix) from e


def _replay_of(path: Path) -> Path | None:
    """The replay of the run in a directory; None if there is none."""
    if not (path / "run.json").is_file():
        return path if (path / MANIFEST).is_file() else None
    return saved_replay_directory(read_toml(path / "config.toml"), path)


def _of_one_step(config: RunConfig) -> bool:
    """True if a sample is one step of the environment, as it was."""
    return config.row_steps == 1 and config.actors.step_processor == "n_step"


_OF_STEPS = frozenset({"agent.n_step", "agent.discount", "replay.sequence"})


def _check_same_samples(config: RunConfig, data: str, path: Path) -> bool:
    """True if another run's samples are made as ours are; False if they can be made so.

    Raises:
        DataSetError: they cannot.
    """
    # Its directory may be named, or the replay in it.
    run = next((p for p in (path, path.absolute().parent) if (p / "run.json").is_file()), None)
    if run is None:
        return _of_one_step(config)
    table = read_toml(run / "config.toml")
    agent = table.get("agent") or {}
    if agent.get("name") != config.agent.name:
        # Reading its settings would import another agent; of rows it decides these.
        of_rows = {key: agent[key] for key in ("n_step", "discount") if key in agent}
        table["agent"] = {"name": "dqn", **of_rows}
    theirs = config_from_table(table)
    differing = [c for c in changed_settings(theirs, config) if "samples" in c.stored_in]
    for change in differing:
        if change.key not in _OF_STEPS:
            why = f"its samples were made with {change.key}={change.before}, not {change.now}"
            raise DataSetError(data, why, f"set {change.key}={change.before}, or export its replay")
    return not differing


def _columns(config: RunConfig, spaces: Spaces) -> tuple[RowColumn, ...]:
    """The declared columns that a data set's rows have: nobody knows their TD errors."""
    return tuple(c for c in configured_columns(config, spaces) if c.name != TD_ERROR)


def stored_row(config: RunConfig, spaces: Spaces) -> np.dtype[Any]:
    """A row of a source's ring, which stores observations whole."""
    row = transition_dtype(spaces, configured_columns(config, spaces))
    return ring_dtype(row, epoch=bool(config.replay.sequence))


class DataReading:
    """Reads one data set into a ring."""

    def __init__(self, config: RunConfig, spaces: Spaces, opened: OpenedData) -> None:
        self._config = config
        self._opened = opened
        declared = _columns(config, spaces)
        self._row = transition_dtype(spaces, declared)
        self._stored = stored_row(config, spaces)
        self._schema = Schema.from_dtype(self._row, column_bounds(spaces, declared))
        self._elements = ElementBounds(spaces)
        self._guard = guard_rows(self._stored)
        self.episodes: int | None = None
        self._returns: list[float] = []
        self._range = _action_range(spaces)
        self._actions = 0
        self._outside = 0
        self._farthest = 0.0
        self._open_rows = 0

    def remarks(self) -> list[str]:
        """Describe what whoever learns from the rows that were read should know, a text each."""
        remarks = [self._opened.remark] if self._opened.remark else []
        data = self._opened.data
        is_replay = isinstance(data, ReplayData) and not data.is_in_order
        if (names := self._config.env.training_wrappers) and not is_replay:
            remarks.append(
                f"its rewards and ends are taken as they were recorded: actors have {names} "
                "besides (training_only), which `vedette collect` leaves out; record without "
                "training_only, or use env.reward_scale and env.reward_clip in its place"
            )
        if self._outside:
            share = 100.0 * self._outside / self._actions
            remarks.append(
                f"{share:.3g} % of its actions are outside the action space's bounds, one as far "
                f"as {self._farthest:g}: they are learned from as they are"
            )
        if self._open_rows:
            remarks.append(
                f"{self._open_rows:,} of its rows end no episode, and the following row did not "
                "see their next_obs: each is taken as a step by itself, and no return is known"
            )
        if left_out := data.left_out:
            remarks.append(
                "steps left out, behind an episode's end or without a recorded successor: "
                f"{left_out:,}"
            )
        return remarks

    def _count_outside(self, actions: NDArray[Any]) -> None:
        """Count actions outside the space's bounds by more than rounding."""
        if self._range is None or not len(actions):
            return
        low, high = self._range
        margin = _ROUNDING * (high - low)
        outside = ((actions < low - margin) | (actions > high + margin)).reshape(len(actions), -1)
        self._actions += len(actions)
        self._outside += int(np.count_nonzero(outside.any(1)))
        if outside.any():
            far = actions.reshape(len(actions), -1)[outside]
            self._farthest = max(self._farthest, *far.ravel().tolist(), key=abs)

    def returns(self) -> dict[str, Any]:
        """The returns of the whole episodes that were read."""
        if not self._returns:
            return {}
        found = np.array(self._returns)
        return {
            "return_mean": float(found.mean()),
            "return_min": float(found.min()),
            "return_max": float(found.max()),
        }

    def space(self) -> ReplaySpace:
        """The space of its ring."""
        config = self._config.replay
        return replay_space(
            self._stored,
            self._most_rows(),
            prioritized=config.prioritized,
            sequences=bool(config.sequence),
            guard=self._guard,
        )

    def check_values(self) -> None:
        """Check all rows, and write none: cheap enough for data that are not large.

        Raises:
            DataSetError: it is empty, a value is not finite or out of its bounds, or an episode is
                broken.
        """
        if not self._opened.data.length:
            raise _empty(self._opened.data.name)
        if self.space().rows_bytes <= _CHECKED_BYTES:
            rows = 0
            for columns in self._rows():
                rows += self._checked(columns, rows)

    def write(self, directory: Path, digest: str) -> int:
        """Write all rows into a ring of exactly so many; returns their number."""
        opened = self._opened
        most = self._most_rows()
        guard = self._guard
        ring = RingWriter.open(directory, self._stored, most, run_id=f"data:{digest}", guard=guard)
        rows = released = 0
        with closing(ring):
            for columns in self._rows():
                count = self._checked(columns, rows)
                rows += count
                if rows - released > guard:  # else all of the ring would be in memory at its end
                    ring.release_memory()
                    released = rows
                if rows > most:
                    why = f"more than {most:,} samples come out of it"
                    raise DataSetError(opened.data.name, why, "declare rows_per_step in its class")
                _append(ring, self._complete(columns, count), count, guard)
        if not rows:
            raise _empty(opened.data.name)
        return rows

    def _most_rows(self) -> int:
        length = self._opened.data.length
        if self._opened.as_rows:
            return max(1, length)
        return max(1, math.ceil(length * self._config.actors.rows_per_step))

    def _rows(self) -> Iterator[Columns]:
        opened = self._opened
        config = self._config
        env = config.env
        rewards = RewardTransform(env.reward_scale, env.reward_clip) if opened.raw_rewards else None
        self._actions = self._outside = 0
        if opened.as_rows:
            assert isinstance(opened.data, ReplayData), "episodes go through a step processor"
            self._open_rows = len(opened.data.open_rows()) if opened.data.is_in_order else 0
            are_steps = _of_one_step(config) and opened.data.longest == 1
            if are_steps and not self._open_rows and opened.data.length <= _RETURNS_OF_ROWS:
                for _ in self._counted(opened.data.episodes()):
                    pass
            for columns in opened.data.rows(self._row):
                if rewards is not None:
                    rewards.write(columns["reward"].copy(), columns["reward"])
                yield columns
            return
        if isinstance(opened.data, ReplayData) and opened.data.is_in_order:
            opened.data.check_borders()
        agent = config.agent
        actors = config.actors
        processor = make_step_processor(
            actors.step_processor,
            config.row_steps,
            agent.discount,
            EPISODES_AT_ONCE,
            self._row,
            her_goals=actors.her_goals,
        )
        with ExitStack() as held:
            if hasattr(processor, "prepare"):  # else the environment need not be here
                envs = held.enter_context(closing(make_vector_environment(env, 1, config.seed)))
                prepare_steps(processor, envs, config.seed)
            episodes = self._counted(opened.data.episodes())
            write = (rewards or RewardTransform()).write
            marks = INTERVENED in (self._row.names or ())
            has_keys = bool(config.replay.sequence)
            yield from transitions(episodes, processor, write, marks=marks, has_keys=has_keys)

    def _counted(self, episodes: Iterator[RecordedEpisode]) -> Iterator[RecordedEpisode]:
        env = self._config.env
        self.episodes = 0
        scale = 0.0 if env.reward_clip else env.reward_scale  # of a replay's rewards
        for episode in episodes:
            self.episodes += 1
            if (episode.terminated or episode.truncated) and (scale or self._opened.raw_rewards):
                total = float(episode.reward.sum())
                self._returns.append(total if self._opened.raw_rewards else total / scale)
            yield episode

    def _checked(self, columns: Columns, before: int) -> int:
        """Check rows as those of a batch from the network are; returns their number.

        Raises:
            DataSetError: a value is not finite, or out of its bounds.
        """
        count = len(columns["reward"])
        if INTERVENED in (self._row.names or ()):  # of an old run, perhaps
            columns.setdefault(INTERVENED, np.zeros(count, np.bool_))
        rows = {name: columns[name] for name in self._row.names or ()}
        try:
            check_rows(rows, self._schema, self._elements)
        except SchemaError as e:
            first = before + self._first_fault(rows, count)
            fix = "repair it or leave it out"
            raise DataSetError(self._opened.data.name, f"sample {first:,}: {e}", fix) from e
        self._count_outside(rows["action"])
        return count

    def _first_fault(self, rows: Columns, count: int) -> int:
        """The first of rows that do not pass."""
        begin, end = 0, count
        while end - begin > 1:
            middle = (begin + end) // 2
            try:
                some = {name: column[begin:middle] for name, column in rows.items()}
                check_rows(some, self._schema, self._elements)
                begin = middle
            except SchemaError:
                end = middle
        return begin

    def _complete(self, columns: Columns, count: int) -> Columns:
        """Rows with the columns that a learner adds: no model made them."""
        whole = {
            name: np.ascontiguousarray(columns[name], self._row[name].base)
            for name in self._row.names or ()
        }
        if TD_ERROR in (self._stored.names or ()):
            whole[TD_ERROR] = np.zeros(count, np.float32)
        for name in (VERSION, MANAGER, ACTOR, EPOCH):
            if name in (self._stored.names or ()):
                whole[name] = np.full(count, -1, self._stored[name])
        return whole


def _action_range(spaces: Spaces) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The bounds of actions in a Box of floats; None where actions have none."""
    action = spaces.action
    if not isinstance(action, gym.spaces.Box) or action.dtype.kind != "f":
        return None
    low, high = action.low.astype(np.float64), action.high.astype(np.float64)
    return (low, high) if np.isfinite(high - low).all() else None


def _empty(name: str) -> DataSetError:
    return DataSetError(name, "it holds no samples", "name another data set")


def _append(ring: RingWriter, columns: Columns, count: int, guard: int) -> None:
    for begin in range(0, count, guard):
        piece = {name: column[begin : begin + guard] for name, column in columns.items()}
        rows = len(piece[VERSION])
        if ring.room < rows:
            ring.commit()
        ring.append(piece, rows)
    ring.commit()


def guard_rows(row: np.dtype[Any]) -> int:
    """Rows that are appended to a source's ring before a commit."""
    return max(1, min(4096, _GUARD_BYTES // max(1, row.itemsize)))


# Telling whether data have changed


def data_files(data: str) -> list[Path]:
    """The files of a data set; none of a run's directory, whose rows change while it runs.

    Raises:
        DataSetError: there is none.
    """
    path = Path(data)
    try:
        if _replay_of(path) is not None:
            return []
        if path.is_dir():
            _check_folder(data)
        folder = _minari_place(data) if data.startswith(MINARI) else path
        if folder.is_file():
            return [folder]
        folder = folder if is_lerobot(folder) else minari_folder(folder)
        return sorted(p for p in folder.rglob("*") if p.is_file())
    except (FileNotFoundError, ImportError) as e:
        why = "there is no such data set here"
        raise DataSetError(data, why, "name one that is there") from e


def _minari_place(data: str) -> Path:
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(data.removeprefix(MINARI)))


def file_stats(files: list[Path]) -> dict[str, list[int]]:
    return {str(f): [f.stat().st_size, f.stat().st_mtime_ns] for f in files}


def digest_of(data: str, files: list[Path]) -> str:
    """A digest of all files; of a replay in its run its identity, which stays while rows change."""
    digest = hashlib.blake2b(digest_size=16)
    if not files and (replay := _replay_of(Path(data))) is not None:
        digest.update(read_manifest(replay).uid.encode())
    for file in files:
        digest.update(file.name.encode() if len(files) > 1 else b"")
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "blake2b").digest())
    return digest.hexdigest()
