"""The sources of a run's samples beside its actors: data sets, each read once into its own ring.

::

    checked = check_sources(config, out, spaces, new=...)             # before anything is changed
    staged = stage_sources(config, run, spaces, checked.unread)       # reads what was not read yet
    place_sources(config, run, staged)                                # renamed: there or not
    rings = open_sources(config, run.root)                            # the trainer, at every start

A source lies in ``sources/NAME`` below the replay's directory: a ring, and ``source.json``, which
says what was read. It is written aside, synced and renamed last, so a killed start leaves none or a
whole one, and no later start reads the data again.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from vedette_rl.core import ReplayBuffer
from vedette_rl.core.columns import INTERVENED
from vedette_rl.datasets.data_sets import ReplayData
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import BEGIN_EMPTY, DataSetError, ReplayFormatError, ReplayTornError, RlError
from vedette_rl.replay import ring_files
from vedette_rl.replay.budget import replay_space
from vedette_rl.replay.config import INTERVENTIONS, SourceConfig
from vedette_rl.replay.manifest import MANIFEST, read_manifest
from vedette_rl.replay.mixed import MixedReplay
from vedette_rl.replay.ring import MarkedRows, RingReader, RingWriter
from vedette_rl.replay.rows import Rows
from vedette_rl.storage.atomic_files import replace_file, sync_directory
from vedette_rl.storage.regular_files import read_json
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import SettingError, config_error
from vedette_services.run.directory import RunDirectory
from vedette_services.run.recovery import recover_once_released
from vedette_services.run.replay_layout import replay_directory
from vedette_services.run.run_files import erase_written
from vedette_services.run.source_data import (
    DataReading,
    data_files,
    digest_of,
    file_stats,
    guard_rows,
    open_data,
    stored_row,
)
from vedette_services.status.status import SourceStatus

log = logging.getLogger("vedette.learner")

SOURCES = "sources"
RECORD = "source.json"
STAGED = "sources.new"


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
        rename: our names of its columns, by its own, as they were read.
    """

    data: str
    digest: str
    files: dict[str, list[int]] = field(default_factory=dict)
    rows: int = 0
    episodes: int | None = None
    return_mean: float | None = None
    return_min: float | None = None
    return_max: float | None = None
    rename: dict[str, str] = field(default_factory=dict)

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
        content = read_json(directory / RECORD)
        names = SourceRecord.__dataclass_fields__  # a newer release may say more
        known = {name: content[name] for name in names if name in content}
        return SourceRecord(**known)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as e:
        damaged = f"{directory / RECORD} is damaged ({e})"
        raise ReplayFormatError(f"{damaged}: {_fix_of(directory)}") from e


def _fix_of(directory: Path) -> str:
    """The fix for a source's directory that is damaged."""
    return f"delete {directory}, and its data set is read again"


class CheckedSources(NamedTuple):
    """What `check_sources` found.

    Args:
        lines: for the user.
        bytes: of the sources that are still to be read.
        unread: their names: this start reads them.
    """

    lines: tuple[str, ...]
    bytes: int
    unread: tuple[str, ...]


def check_sources(config: RunConfig, out: Path, spaces: Spaces, *, new: bool) -> CheckedSources:
    """Check all sources that are not read yet: values too, unless they are large.

    Args:
        new: the run's replay begins anew.

    Raises:
        SettingError: a data set is not there, torn, of other spaces, or has changed since it was
            read.
    """
    lines = []
    total = 0
    unread: list[str] = []
    for name, source in config.replay.sources.items():
        key = f"replay.sources.{name}" + (".data" if source.data else "")
        with _source_errors(key):
            if not source.data:
                guard = guard_rows(row := stored_row(config, spaces))
                total += replay_space(
                    row,
                    source.capacity,
                    prioritized=config.replay.prioritized,
                    sequences=bool(config.replay.sequence),
                    guard=guard,
                ).total_bytes
                continue
            if not new and (record := _known(config, out, name)) is not None:
                lines.append(f"source {name}: {record}, read before")
                continue
            reading = DataReading(config, spaces, open_data(config, spaces, source))
            reading.check_values()
            total += reading.space().total_bytes
            unread.append(name)
            lines.append(f"source {name}: {source.data}, which is read once, at this start")
            lines += [f"source {name}: {remark}" for remark in reading.remarks()]
    if not new:
        lines += _left_sources(config, out)
    return CheckedSources(tuple(lines), total, tuple(unread))


@contextmanager
def _source_errors(key: str) -> Iterator[None]:
    """Raise what is wrong with a source as an error of its key."""
    try:
        yield
    except ReplayTornError as e:  # our copy is torn, not the data set
        raise SettingError(key, f"{e.path} {e.why}", _fix_of(e.path.parent)) from e
    except RlError as e:
        raise config_error(e, key) from e
    except OSError as e:
        raise SettingError(key, str(e)) from e


def _left_sources(config: RunConfig, out: Path) -> list[str]:
    """Describe the sources of earlier starts that the configuration does not name any more."""
    rings = sorted((replay_directory(config, out) / SOURCES).glob(f"*/{MANIFEST}"))
    return [
        f"source {ring.parent.name}: no longer drawn from, as replay.sources does not name it; "
        f"its rows remain in {ring.parent}"
        for ring in rings
        if ring.parent.name not in config.replay.sources
    ]


def _known(config: RunConfig, out: Path, name: str) -> SourceRecord | None:
    """The record of a source that was read before, if its data are what they were.

    Raises:
        DataSetError: they are not.
        ReplayFormatError: its ring is torn.
    """
    directory = source_directory(config, out, name)
    source = config.replay.sources[name]
    data = source.data
    record = read_record(directory)
    if record is None:
        return None
    ring_files.check_files(directory, read_manifest(directory))
    if record.rename != dict(source.rename):
        why = f"the run in {out} has read it with rename={record.rename}, not {dict(source.rename)}"
        raise DataSetError(data, why, f"set that, or {BEGIN_EMPTY}")
    try:
        files = data_files(data)
    except DataSetError:
        if data == record.data:  # what was read of it is here
            return record
        raise
    if data == record.data and file_stats(files) == record.files and files:
        return record
    if digest_of(data, files) != record.digest:
        raise DataSetError(
            data,
            f"it is not what the run in {out} has read: that was {record}",
            "put it back as it was, begin an empty replay with --new-replay, or choose another "
            "--out",
        )
    return record


def stage_sources(
    config: RunConfig, run: RunDirectory, spaces: Spaces, unread: Iterable[str]
) -> dict[str, SourceRecord]:
    """Read data sets, and check all of each, aside.

    Args:
        unread: `CheckedSources.unread`.

    Raises:
        SettingError: one is torn or does not fit; nothing has changed then.
    """
    staged = run.root / STAGED
    shutil.rmtree(staged, ignore_errors=True)
    records: dict[str, SourceRecord] = {}
    try:
        for name in unread:
            source = config.replay.sources[name]
            records[name] = _stage(config, spaces, name, source, staged / name)
    except BaseException as error:
        shutil.rmtree(staged, ignore_errors=True)
        if isinstance(error, DataSetError):
            raise config_error(error, f"replay.sources.{name}.data") from error
        raise
    return records


def place_sources(config: RunConfig, run: RunDirectory, staged: dict[str, SourceRecord]) -> None:
    """Move what was staged to its place, and recover what was lost of the interventions."""
    recovery = recover_once_released(source_directory(config, run.root, INTERVENTIONS))
    if recovery is not None:
        log.warning("source %s: %s", INTERVENTIONS, recovery)
    for name in staged:
        directory = source_directory(config, run.root, name)
        directory.parent.mkdir(parents=True, exist_ok=True)
        erase_written(directory, "source")  # of a run that was erased
        if directory.exists():
            why = f"{directory} holds files that no run wrote"
            raise SettingError(f"replay.sources.{name}", why, "put them elsewhere")
        shutil.move(run.root / STAGED / name, directory)
        sync_directory(directory.parent)
    shutil.rmtree(run.root / STAGED, ignore_errors=True)


def _stage(
    config: RunConfig, spaces: Spaces, name: str, source: SourceConfig, directory: Path
) -> SourceRecord:
    began = time.monotonic()
    data = source.data
    files = data_files(data)
    digest = digest_of(data, files)
    opened = open_data(config, spaces, source)
    reading = DataReading(config, spaces, opened)
    rows = reading.write(directory, digest)
    if isinstance(opened.data, ReplayData) and (live := opened.data.live) is not None:
        gone = live.overwritten
        live.close()
        if gone:
            why = f"its run has overwritten {gone:,} samples while they were read"
            raise DataSetError(data, why, "stop that run, or export its replay and name the file")
    record = replace(
        SourceRecord(data, digest, file_stats(files), rows, reading.episodes),
        rename=dict(source.rename),
        **reading.returns(),
    )
    replace_file(directory / RECORD, json.dumps(asdict(record), indent=1), durable=True)
    log.info("source %s: %s, read in %.1f s", name, record, time.monotonic() - began)
    for remark in reading.remarks():
        log.info("source %s: %s", name, remark)
    return record


# Drawing


def open_sources(config: RunConfig, out: Path) -> dict[str, RingReader]:
    """The rings of the named sources, to draw from.

    Raises:
        ReplayFormatError: one is not there, or torn.
    """
    return {
        name: RingReader(source_directory(config, out, name), batch_rows=_MARKED_ROWS)
        for name in config.replay.sources
    }


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


def with_shares(
    sources: tuple[SourceStatus, ...], replay: ReplayBuffer
) -> tuple[SourceStatus, ...]:
    """The named sources with the shares that were drawn before the last record."""
    shares = replay.shares if isinstance(replay, MixedReplay) else {}
    return tuple(replace(source, share=shares.get(source.name)) for source in sources)


# Interventions


_MARKED_ROWS = 1
"""Rows that must fit before a commit: it takes as many as there is room for."""


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
        guard=guard_rows(row),
        batch_rows=_MARKED_ROWS,
        sync_interval_s=config.replay.sync_interval_s,
    )
    return MarkedRows(rows, ring, INTERVENED)


def sizes_of(interventions: MarkedRows | None) -> dict[str, int]:
    """The sizes of the named sources that grow, for the status."""
    return {} if interventions is None else {INTERVENTIONS: interventions.ring.size}
