"""The sources of a run's samples beside its actors: data sets, each read once into its own ring.

::

    check_sources(config, out, spaces, new=...)       # before anything is changed
    staged = stage_sources(config, run, new=...)      # reads what was not read yet
    place_sources(config, run, staged)                # renamed: there or not
    rings = open_sources(config, run.root)            # the trainer, at every start

A source lies in ``sources/NAME`` below the replay's directory: a ring, and ``source.json``, which
says what was read. It is written aside, synced and renamed last, so a killed start leaves none or a
whole one, and no later start reads the data again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vedette_protocol.errors import SchemaError
from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns, RowColumn
from vedette_rl.core.columns import ACTOR, INTERVENED, MANAGER, VERSION
from vedette_rl.envs.make import make_vector_environment, probe_environment
from vedette_rl.envs.spaces import Spaces, column_bounds, transition_dtype
from vedette_rl.envs.vector_env import RewardTransform
from vedette_rl.errors import DataSetError, ReplayFormatError, RlError
from vedette_rl.exported.data_sets import (
    LANES,
    MINARI,
    MinariData,
    RecordedEpisode,
    ReplayData,
    minari_folder,
    open_npz,
    open_replay_rows,
    transitions,
)
from vedette_rl.replay import ring_files
from vedette_rl.replay.budget import replay_space
from vedette_rl.replay.config import INTERVENTIONS
from vedette_rl.replay.export import LiveRows
from vedette_rl.replay.manifest import MANIFEST, read_manifest
from vedette_rl.replay.mixed import MarkedRows
from vedette_rl.replay.prioritized import TD_ERROR
from vedette_rl.replay.ring import RingReader, RingWriter, recover_replay
from vedette_rl.replay.rows import Rows
from vedette_rl.steps.n_step import make_step_processor, prepare_steps
from vedette_rl.storage.atomic_files import replace_file, sync_directory
from vedette_services.config.loading import read_config
from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import changed_settings
from vedette_services.errors import SettingError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_layout import (
    configured_columns,
    replay_directory,
    ring_dtype,
)
from vedette_services.run.status import SourceStatus

log = logging.getLogger("vedette.learner")

SOURCES = "sources"
RECORD = "source.json"
STAGED = "sources.new"

_GUARD_BYTES = 16 << 20
_RETURNS_OF_ROWS = 200_000
"""Rows of a replay, beyond which its episodes are not put together for their returns alone."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """What was read of a data set, as ``source.json`` has it.

    Args:
        data: as the configuration names it.
        digest: of its content.
        files: the size and time of each of its files.
        rows: in the ring.
        episodes: of the data set; None: not known.
        return_mean, return_min, return_max: of its whole episodes; None: not known.
    """

    data: str
    digest: str
    files: dict[str, list[int]] = field(default_factory=dict)
    rows: int = 0
    episodes: int | None = None
    return_mean: float | None = None
    return_min: float | None = None
    return_max: float | None = None

    def __str__(self) -> str:
        episodes = "" if self.episodes is None else f" of {self.episodes:,} episodes"
        returns = "" if self.return_mean is None else f", mean return {self.return_mean:.4g}"
        return f"{self.rows:,} samples{episodes}{returns}, from {self.data}"


def source_directory(config: RunConfig, out: Path, name: str) -> Path:
    """The directory of a source."""
    return replay_directory(config, out) / SOURCES / name


def read_record(directory: Path) -> SourceRecord | None:
    """Read what a source's directory says; None if it was not read yet.

    Raises:
        ReplayFormatError: it is damaged.
    """
    try:
        content = json.loads((directory / RECORD).read_text("utf-8"))
        return SourceRecord(**content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as e:
        fix = f"delete {directory}, and its data set is read again"
        raise ReplayFormatError(f"{directory / RECORD} is damaged ({e}): {fix}") from e


class CheckedSources(NamedTuple):
    """What `check_sources` found.

    Args:
        lines: for the user.
        bytes: of the sources that are still to be read.
    """

    lines: tuple[str, ...]
    bytes: int


def check_sources(config: RunConfig, out: Path, spaces: Spaces, *, new: bool) -> CheckedSources:
    """Check what can be checked of all sources without reading them whole.

    Args:
        new: the run's replay begins anew.

    Raises:
        SettingError: a data set is not there, torn, of other spaces, or has changed since it was
            read.
    """
    lines, total = [], 0
    for name, source in config.replay.sources.items():
        key = f"replay.sources.{name}" + (".data" if source.data else "")
        try:
            if not source.data:
                guard = _guard(row := stored_row(config, spaces))
                total += replay_space(
                    row, source.capacity, prioritized=config.replay.prioritized, guard=guard
                ).total_bytes
                continue
            if not new and (record := _known(config, out, name)) is not None:
                lines.append(f"source {name}: {record}, read before")
                continue
            reading = _Reading(config, spaces, _open(config, spaces, source.data))
            total += reading.space(config.replay.prioritized)
            lines.append(f"source {name}: {source.data}, which is read once, at this start")
        except DataSetError as e:
            raise SettingError(key, f"{e.name}: {e.why}", e.fix) from e
        except (RlError, OSError) as e:
            raise SettingError(key, str(e)) from e
    return CheckedSources(tuple(lines), total)


def _known(config: RunConfig, out: Path, name: str) -> SourceRecord | None:
    """The record of a source that was read before, if its data are what they were.

    Raises:
        DataSetError: they are not.
        ReplayFormatError: its ring is torn.
    """
    directory, data = source_directory(config, out, name), config.replay.sources[name].data
    record = read_record(directory)
    if record is None:
        return None
    ring_files.check_files(directory, read_manifest(directory))
    try:
        files = _files(data)
    except DataSetError:
        if data == record.data:  # what was read of it is here
            return record
        raise
    if data == record.data and _stats(files) == record.files and files:
        return record
    if _digest(data, files) != record.digest:
        raise DataSetError(
            data,
            f"it is not what the run in {out} has read: that was {record}",
            "put it back as it was, begin the replay anew with --new-replay, or choose another "
            "--out",
        )
    return record


# Reading


@dataclass(frozen=True, slots=True)
class _Opened:
    """A data set that fits the run.

    Args:
        as_rows: its rows are taken as they are; else its episodes go through a step processor.
        raw_rewards: its rewards are the environment's, and are scaled and clipped as an actor's.
    """

    data: MinariData | ReplayData
    as_rows: bool
    raw_rewards: bool


def _open(config: RunConfig, spaces: Spaces, data: str) -> _Opened:
    """Open a data set and check its form.

    Raises:
        DataSetError: it does not fit.
    """
    declared = agent_kind(config.agent.name).columns(config.agent, spaces)
    path = Path(data)
    if data.startswith(MINARI) or (path.is_dir() and _replay_of(path) is None):
        if declared:
            why = f"it has no column {declared[0].name!r}, which agent {config.agent.name} declares"
            raise DataSetError(data, why, "name an exported replay, or another agent")
        found = MinariData(data, config.env)
        return _Opened(found, as_rows=False, raw_rewards=True)
    if (replay := _replay_of(path)) is not None:
        rows = open_replay_rows(data, replay)
        same = _check_same_samples(config, data, path)
    elif path.is_file():
        rows = open_npz(data, config.env)
        same = config.agent.n_step == 1 and config.actors.step_processor == "n_step"
    else:
        raise DataSetError(data, "there is no such file or folder", "name one that is there")
    rows.check(transition_dtype(spaces, _columns(config, spaces)), frozenset({INTERVENED}))
    if not same and rows.longest > 1:
        why = "its transitions span several steps"
        fix = "name the directory of a run with the same settings, or one with agent.n_step=1"
        raise DataSetError(data, why, fix)
    return _Opened(rows, as_rows=same or rows.longest > 1, raw_rewards=False)


def _replay_of(path: Path) -> Path | None:
    """The replay of the run in a directory; None if there is none."""
    if not (path / "run.json").is_file():
        return path if (path / MANIFEST).is_file() else None
    return replay_directory(read_config(path / "config.toml"), path)


_OF_STEPS = frozenset({"agent.n_step", "agent.discount"})


def _check_same_samples(config: RunConfig, data: str, path: Path) -> bool:
    """True if another run's samples are made as ours are; False if they can be made so.

    Raises:
        DataSetError: they cannot.
    """
    if not (path / "run.json").is_file():
        return config.agent.n_step == 1 and config.actors.step_processor == "n_step"
    theirs = read_config(path / "config.toml")
    differing = [c for c in changed_settings(theirs, config) if "samples" in c.stored_in]
    for change in differing:
        if change.key not in _OF_STEPS:
            why = f"its samples were made with {change.key}={change.before}, not {change.now}"
            raise DataSetError(data, why, f"set {change.key}={change.before}, or export its replay")
    return not differing


def stage_sources(config: RunConfig, run: RunDirectory, *, new: bool) -> dict[str, SourceRecord]:
    """Read every data set that was not read yet, and check all of it, aside.

    Raises:
        SettingError: one is torn or does not fit; nothing has changed then.
    """
    staged = run.root / STAGED
    shutil.rmtree(staged, ignore_errors=True)
    named = {name: source for name, source in config.replay.sources.items() if source.data}
    found: dict[str, SourceRecord] = {}
    spaces: Spaces | None = None
    try:
        for name, source in named.items():
            if not new and read_record(source_directory(config, run.root, name)) is not None:
                continue
            spaces = spaces or probe_environment(config.env)
            found[name] = _stage(config, spaces, name, source.data, staged / name)
    except DataSetError as e:
        shutil.rmtree(staged, ignore_errors=True)
        raise SettingError(f"replay.sources.{name}.data", f"{e.name}: {e.why}", e.fix) from e
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    return found


def place_sources(config: RunConfig, run: RunDirectory, staged: dict[str, SourceRecord]) -> None:
    """Move what was staged to its place, and recover what a power failure has torn."""
    recover_replay(source_directory(config, run.root, INTERVENTIONS))
    for name in staged:
        directory = source_directory(config, run.root, name)
        directory.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)  # of a run that was erased
        shutil.move(run.root / STAGED / name, directory)
        sync_directory(directory.parent)
    shutil.rmtree(run.root / STAGED, ignore_errors=True)


def _stage(
    config: RunConfig, spaces: Spaces, name: str, data: str, directory: Path
) -> SourceRecord:
    began, files = time.monotonic(), _files(data)
    digest, opened = _digest(data, files), _open(config, spaces, data)
    reading = _Reading(config, spaces, opened)
    rows = reading.write(directory, digest)
    if isinstance(opened.data, ReplayData) and isinstance(opened.data.stored, LiveRows):
        gone = opened.data.stored.overwritten
        opened.data.stored.close()
        if gone:
            why = f"its run has overwritten {gone:,} samples while they were read"
            raise DataSetError(data, why, "stop that run, or export its replay and name the file")
    record = replace(
        SourceRecord(data, digest, _stats(files), rows, reading.episodes), **reading.returns()
    )
    replace_file(directory / RECORD, json.dumps(asdict(record), indent=1), durable=True)
    log.info("source %s: %s, read in %.1f s", name, record, time.monotonic() - began)
    return record


class _Reading:
    """Reads one data set into a ring."""

    def __init__(self, config: RunConfig, spaces: Spaces, opened: _Opened) -> None:
        self._config, self._spaces, self._opened = config, spaces, opened
        declared = _columns(config, spaces)
        self._row = transition_dtype(spaces, declared)
        self._stored = stored_row(config, spaces)
        self._schema = Schema.from_dtype(self._row, column_bounds(spaces, declared))
        self._guard = _guard(self._stored)
        self.episodes: int | None = None
        self._returns: list[float] = []

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

    def space(self, prioritized: bool) -> int:
        """Bytes of its ring."""
        rows, guard = self._most_rows(), self._guard
        return replay_space(self._stored, rows, prioritized=prioritized, guard=guard).total_bytes

    def write(self, directory: Path, digest: str) -> int:
        """Write all rows into a ring of exactly so many; returns their number."""
        opened, most, guard = self._opened, self._most_rows(), self._guard
        ring = RingWriter.open(directory, self._stored, most, run_id=f"data:{digest}", guard=guard)
        rows = 0
        with closing(ring):
            for columns in self._rows():
                count = len(columns["reward"])
                if INTERVENED in (self._row.names or ()):  # of an old run, perhaps
                    columns.setdefault(INTERVENED, np.zeros(count, np.bool_))
                self._check(columns, rows)
                rows += count
                if rows > most:
                    why = f"more than {most:,} samples come out of it"
                    raise DataSetError(opened.data.name, why, "declare rows_per_step in its class")
                _append(ring, self._complete(columns, count), count, guard)
        if not rows:
            raise DataSetError(opened.data.name, "it holds no samples", "name another data set")
        return rows

    def _most_rows(self) -> int:
        length = self._opened.data.length
        if self._opened.as_rows:
            return max(1, length)
        return max(1, math.ceil(length * self._config.actors.rows_per_step))

    def _rows(self) -> Iterator[Columns]:
        opened, config = self._opened, self._config
        if opened.as_rows:
            assert isinstance(opened.data, ReplayData), "episodes go through a step processor"
            if opened.data.length <= _RETURNS_OF_ROWS and opened.data.longest == 1:
                for _ in self._counted(opened.data.episodes()):
                    pass
            yield from opened.data.rows(self._row)
            return
        agent, actors, env = config.agent, config.actors, config.env
        processor = make_step_processor(
            *(actors.step_processor, agent.n_step, agent.discount, LANES, self._row),
            her_goals=actors.her_goals,
        )
        rewards = RewardTransform(env.reward_scale, env.reward_clip) if opened.raw_rewards else None
        with closing(make_vector_environment(env, 1, config.seed)) as envs:
            prepare_steps(processor, envs, config.seed)
            episodes = self._counted(opened.data.episodes())
            yield from transitions(episodes, processor, (rewards or RewardTransform()).write, {})

    def _counted(self, episodes: Iterator[RecordedEpisode]) -> Iterator[RecordedEpisode]:
        env, self.episodes = self._config.env, 0
        scale = 0.0 if env.reward_clip else env.reward_scale  # of a replay's rewards
        for episode in episodes:
            self.episodes += 1
            if (episode.terminated or episode.truncated) and (scale or self._opened.raw_rewards):
                total = float(episode.reward.sum())
                self._returns.append(total if self._opened.raw_rewards else total / scale)
            yield episode

    def _check(self, columns: Columns, before: int) -> None:
        """Check rows as those of a batch from the network are.

        Raises:
            DataSetError: a value is not finite, or out of its bounds.
        """
        try:
            self._schema.check_values({name: columns[name] for name in self._row.names or ()})
        except SchemaError as e:
            where = f"samples {before:,} to {before + len(columns['reward']):,}"
            raise DataSetError(
                self._opened.data.name, f"{where}: {e}", "repair it or leave it out"
            ) from e

    def _complete(self, columns: Columns, count: int) -> Columns:
        """Rows with the columns that a learner adds: no model made them."""
        whole = {
            name: np.ascontiguousarray(columns[name], self._row[name].base)
            for name in self._row.names or ()
        }
        if TD_ERROR in (self._stored.names or ()):
            whole[TD_ERROR] = np.zeros(count, np.float32)
        for name in (VERSION, MANAGER, ACTOR):
            whole[name] = np.full(count, -1, self._stored[name])
        return whole


def _append(ring: RingWriter, columns: Columns, count: int, guard: int) -> None:
    for begin in range(0, count, guard):
        piece = {name: column[begin : begin + guard] for name, column in columns.items()}
        rows = len(piece[VERSION])
        if ring.room < rows:
            ring.commit()
        ring.append(piece, rows)
    ring.commit()


def _guard(row: np.dtype[Any]) -> int:
    """Rows that are appended to a source's ring before a commit."""
    return max(1, min(4096, _GUARD_BYTES // max(1, row.itemsize)))


# Telling whether data have changed


def _files(data: str) -> list[Path]:
    """The files of a data set; none of a run's directory, whose rows change while it runs.

    Raises:
        DataSetError: there is none.
    """
    path = Path(data)
    try:
        if _replay_of(path) is not None:
            return []
        folder = _minari_place(data) if data.startswith(MINARI) else path
        if folder.is_file():
            return [folder]
        return sorted(p for p in minari_folder(folder).rglob("*") if p.is_file())
    except (FileNotFoundError, ImportError) as e:
        why = "there is no such data set here"
        raise DataSetError(data, why, "name one that is there") from e


def _minari_place(data: str) -> Path:
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(data.removeprefix(MINARI)))


def _stats(files: list[Path]) -> dict[str, list[int]]:
    return {str(f): [f.stat().st_size, f.stat().st_mtime_ns] for f in files}


def _digest(data: str, files: list[Path]) -> str:
    """A digest of all files; of a replay in its run its identity, which stays while rows change."""
    digest = hashlib.blake2b(digest_size=16)
    if not files and (replay := _replay_of(Path(data))) is not None:
        digest.update(read_manifest(replay).uid.encode())
    for file in files:
        digest.update(file.name.encode() if len(files) > 1 else b"")
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "blake2b").digest())
    return digest.hexdigest()


# Drawing


def _columns(config: RunConfig, spaces: Spaces) -> tuple[RowColumn, ...]:
    """The declared columns that a data set's rows have: nobody knows their TD errors."""
    return tuple(c for c in configured_columns(config, spaces) if c.name != TD_ERROR)


def stored_row(config: RunConfig, spaces: Spaces) -> np.dtype[Any]:
    """A row of a source's ring, which stores observations whole."""
    return ring_dtype(transition_dtype(spaces, configured_columns(config, spaces)))


def open_sources(config: RunConfig, out: Path) -> dict[str, RingReader]:
    """The rings of the named sources, to draw from.

    Raises:
        ReplayFormatError: one is not there, or torn.
    """
    return {name: RingReader(source_directory(config, out, name)) for name in config.replay.sources}


def describe_sources(config: RunConfig, out: Path) -> tuple[SourceStatus, ...]:
    """The named sources as the status has them at a start."""
    found = []
    for name in config.replay.sources:
        record = read_record(source_directory(config, out, name))
        if record is None:
            found.append(SourceStatus(name))
        else:
            of = record.rows, None, record.episodes, record.return_mean
            found.append(SourceStatus(name, *of))
    return tuple(found)


# Interventions


def open_interventions(
    config: RunConfig, out: Path, run_id: str, spaces: Spaces, rows: Rows
) -> MarkedRows | None:
    """What keeps the rows in which a person acted; None where no source is for them.

    Args:
        rows: of the actors.

    Raises:
        ReplayFormatError: the ring that is there is torn, or of another form.
    """
    source = config.replay.sources.get(INTERVENTIONS)
    if source is None:
        return None
    row = stored_row(config, spaces)
    ring = RingWriter.open(
        source_directory(config, out, INTERVENTIONS),
        row,
        source.capacity,
        run_id=run_id,
        guard=_guard(row),
        sync_interval_s=config.replay.sync_interval_s,
    )
    return MarkedRows(rows, ring, INTERVENED)
