"""Exports a run's policy or replay to a file, which is written whole or not at all."""

from __future__ import annotations

import logging
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib.format import dtype_to_descr, write_array_header_1_0
from numpy.typing import NDArray

from vedette_rl.core.columns import REWARD_CLIP, REWARD_SCALE, SOURCE
from vedette_rl.datasets.data_sets import MINARI
from vedette_rl.datasets.minari import missing_packages, write_minari
from vedette_rl.envs.config import EnvConfig
from vedette_rl.errors import ExportError
from vedette_rl.exported import PolicyFile, write_numpy, write_safetensors
from vedette_rl.replay.config import ACTORS
from vedette_rl.replay.export import LiveRows
from vedette_rl.storage.atomic_files import replacing
from vedette_rl.storage.unfinished import unfinished_of
from vedette_services.config.saving import config_table
from vedette_services.errors import NotInRunError, UsageError
from vedette_services.host.system import vedette_version
from vedette_services.run.directory import RunDirectory
from vedette_services.run.finished import FinishedRun, SavedModel
from vedette_services.run.outcome import read_summary
from vedette_services.run.output_files import check_output
from vedette_services.run.provenance import public_config, public_start, read_provenance

log = logging.getLogger("vedette.export")

FORMATS = {"policy": ("onnx", "safetensors", "numpy"), "replay": ("npz", "minari")}


def check_export(what: str, format: str, out: Path) -> None:
    """Check that there is such an export, and that it can be written to `out`.

    Raises:
        UsageError: names the option that is wrong.
    """
    if what not in FORMATS:
        raise UsageError(f"--what {what}: not known; policy and replay are")
    if format not in FORMATS[what]:
        known = ", ".join(FORMATS[what])
        raise UsageError(f"--format {format}: a {what} is exported as {known}")
    if format == "minari":
        require_minari("--format minari")
        DataSetPlace.of(str(out))
    elif out.is_dir() or not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: name a file in a folder that exists")
    else:
        check_output("--out", out)
    folder = out.absolute().parent
    is_ours = folder.is_dir() and not str(out).startswith(MINARI)
    if is_ours and not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--out {out}: {folder} cannot be written; name another folder")


@dataclass(frozen=True, slots=True)
class DataSetPlace:
    """The place to which a Minari data set is written.

    Args:
        path: a new folder.
        inner: the folder in it that has the files; "" for itself.
        id: the data set's.
    """

    path: Path
    inner: str
    id: str

    @classmethod
    def of(cls, out: str) -> DataSetPlace:
        """Find the place: a folder, or ``minari:ID`` for Minari's own folder of data sets.

        Raises:
            UsageError: it is there already, another process has begun it, or it cannot be made.
        """
        place = cls._in_minari(out) if out.startswith(MINARI) else cls._in_folder(out)
        for left in unfinished_of(place.path.absolute()):
            if left.runs:
                why = f"process {left.pid} writes it now, as {left.path}"
                raise UsageError(f"--out {out}: {why}; wait for it, or name another --out")
            killed = "a process that was killed"
            of = killed if left.runs is False else f"{killed}, or writes it now on another host"
            fix = "rename this data set to keep it, or delete it"
            raise UsageError(f"--out {out}: {left.path} has the episodes of {of}; {fix}")
        return place

    @classmethod
    def _in_folder(cls, out: str) -> DataSetPlace:
        path = Path(out)
        if path.exists():
            raise UsageError(f"--out {out}: it is there already; a Minari dataset is a new folder")
        if not path.absolute().parent.is_dir():
            raise UsageError(f"--out {out}: name a new folder in one that exists")
        check_output("--out", path)
        return cls(path, "", f"{re.sub('[^A-Za-z0-9_-]', '-', path.name)}-v0")

    @classmethod
    def _in_minari(cls, out: str) -> DataSetPlace:
        from minari.dataset.minari_dataset import parse_dataset_id
        from minari.storage.datasets_root_dir import get_dataset_path

        name = out.removeprefix(MINARI)
        try:
            parse_dataset_id(name)
        except (ValueError, TypeError) as e:
            raise UsageError(f"--out {out}: an ID is such as cartpole/expert-v0") from e
        path = Path(get_dataset_path(name))
        if path.exists():
            raise UsageError(f"--out {out}: it is there already; count up its version")
        path.parent.mkdir(parents=True, exist_ok=True)
        return cls(path, "data", name)

    def make(self, aside: Path) -> Path:
        """Make the folder under another name; return the one in it that gets the files."""
        inner = aside / self.inner
        inner.mkdir(parents=True)
        return inner


def require_minari(wanted_by: str) -> None:
    """Refuse what needs the minari extra where it is not installed.

    Raises:
        UsageError: it is not.
    """
    if missing := missing_packages():
        raise UsageError(
            f"{wanted_by} needs the minari extra ({missing[0]} is not installed): "
            "pip install 'vedette[minari]'"
        )


def export_policy(
    run: FinishedRun,
    format: str,
    out: Path,
    checkpoint: str | None = None,
    env: EnvConfig | None = None,
) -> SavedModel:
    """Write a run's policy as ``onnx``, ``safetensors`` or ``numpy``; returns the model.

    The actions of the policy are those of the environment.

    Args:
        checkpoint: its optimization steps, or ``latest``; None: the best model.
        env: the configuration by which others make the environment; None: the run's.

    Raises:
        NotInRunError: the run has no such model.
        UsageError: the format needs an extra that is not installed, or the agent lacks it.
    """
    kept = run.load_model(checkpoint)
    policy = policy_of(run, kept, env)
    with replacing(out) as aside:
        if format == "onnx":
            _write_onnx(aside, policy)
            return kept
        write = write_numpy if format == "numpy" else write_safetensors
        with aside.open("wb") as file:
            write(file, policy)
    return kept


def policy_of(run: FinishedRun, kept: SavedModel, env: EnvConfig | None = None) -> PolicyFile:
    """The policy of a run's model, as a file would hold it."""
    run.check_imports("agent")
    meta = {"env": run.config.env.id, "played": run.played(env), **kept.meta}
    return PolicyFile(run.config.agent, run.own_spaces, kept.model, meta)


def _write_onnx(path: Path, policy: PolicyFile) -> None:
    # imports torch, which the others do without
    from vedette_rl.exported.onnx_file import write_onnx

    write_onnx(path, policy)


def export_replay(
    run: FinishedRun, format: str, out: Path, say: Callable[[str], None] = log.warning
) -> int:
    """Write a replay's live rows as ``npz``, or the actors' episodes as a ``minari`` dataset.

    The rows of other sources follow the actors'; then a column `source` names each row's. The
    columns `reward_scale` and `reward_clip` say what was done to the environment's rewards.

    Actions are those of the environment, which is made to find its first discrete action.

    Args:
        say: takes a line for what a ``minari`` dataset has not as the environment gave it.

    Returns:
        The number of rows or episodes.

    Raises:
        NotInRunError: the run has no replay.
        OneWriterError: its learner still runs.
        UnknownEnvironmentError: the environment cannot be made here.
        UsageError: the format needs an extra that is not installed.
        ExportError: the replay has no such form.
    """
    if not run.replay.is_dir():
        raise NotInRunError(run.directory, f"replay/{_why_no_replay(run)}")
    if format == "minari":
        return _write_minari(run, out, say)
    return _write_npz(run, out)


def _why_no_replay(run: FinishedRun) -> str:
    identified = RunDirectory(run.directory)
    if not (identified.exists and identified.identity().in_process):
        return ""
    why = "a run in one process keeps its samples in memory, and they are gone with it"
    return f": {why}; train without --in-process (in_process=True) to keep them"


def _write_minari(run: FinishedRun, out: Path, say: Callable[[str], None]) -> int:
    require_minari("--format minari")
    steps = run.config.actors.step_processor
    if steps == "her":
        why = "its rows are relabelled by actors.step_processor=her, and are no steps of an episode"
        raise ExportError("minari", f"{why}; export it as npz, or train with n_step")
    place = DataSetPlace.of(str(out))
    if not run.config.env.is_declared:  # it is made
        run.check_imports("env")
    with LiveRows(run.replay) as rows, replacing(place.path) as aside:
        data = place.make(aside)
        about = _about(run, rows)
        count = write_minari(data, rows, run.config.env, place.id, about)
        if steps != "n_step":
            say(f"steps and rewards are in {out} as actors.step_processor={steps} made them")
        if clipped := about["vedette"].get("rewards_clipped"):
            say(
                f"rewards in {out} are the environment's up to ±{clipped['to']:g}, to which "
                f"env.reward_clip has clipped {clipped['rows']:,} of {len(rows):,}"
            )
        return count


def _about(run: FinishedRun, rows: LiveRows) -> dict[str, Any]:
    """The provenance of a run's samples, as a data set's metadata: what may be published of it."""
    versions = rows.column("version")
    config = run.config
    starts = [public_start(start) for start in read_provenance(RunDirectory(run.directory))]
    made = {
        "vedette_version": vedette_version(),
        "recorded": "replay",
        "by": [config.agent.name],
        "agent": config.agent.name,
        "run_id": read_summary(run.directory).run_id,
        "model_versions": [int(versions.min()), int(versions.max())] if len(rows) else [],
        "seed": config.seed,
        "config": config_table(public_config(config)),
        "starts": starts,
    }
    if clipped := _clipped_rewards(config.env, rows):
        made["rewards_clipped"] = clipped
    env = f" on {config.env.id}"
    return {
        "algorithm_name": config.agent.name,
        "description": f"The replay of a run of {config.agent.name}{env}, by Vedette.",
        "vedette": made,
    }


def _clipped_rewards(env: EnvConfig, rows: LiveRows) -> dict[str, Any]:
    """The bound of clipped rewards, in the environment's own, and how many are at it; empty where
    none is."""
    if not env.reward_clip:
        return {}
    at_bound = np.abs(rows.column("reward")) >= np.float32(env.reward_clip)
    count = int(np.count_nonzero(at_bound))
    return {"to": env.reward_clip / abs(env.reward_scale), "rows": count} if count else {}


def _write_npz(run: FinishedRun, out: Path) -> int:
    # Some megabytes at a time: numpy.savez asks for all of it in memory at once.
    with (
        replacing(out) as aside,
        ExitStack() as opened,
        zipfile.ZipFile(aside, "w") as file,
    ):
        directories = {ACTORS: run.replay, **run.source_directories}
        sources = {
            name: opened.enter_context(LiveRows(directory))
            for name, directory in directories.items()
        }
        actors = sources[ACTORS]
        _check_members(actors.names)
        total = sum(map(len, sources.values()))
        begin = _first_action(run, actors)
        for name in actors.names:
            column = actors.dtype[name]
            with _npy_member(file, name, column.base, (total, *column.shape)) as member:
                for piece in chain.from_iterable(rows.pieces(name) for rows in sources.values()):
                    own = piece if begin is None or name != "action" else piece + begin
                    member.write(own.data)
        env = run.config.env
        for name, done in ((REWARD_SCALE, env.reward_scale), (REWARD_CLIP, env.reward_clip)):
            with _npy_member(file, name, np.dtype(np.float64), (total,)) as member:
                member.write(np.full(total, done).data)
        if len(sources) > 1:
            names = np.repeat(list(sources), [len(rows) for rows in sources.values()])
            with _npy_member(file, SOURCE, names.dtype, names.shape) as member:
                member.write(names.tobytes())
        return total


def _check_members(names: Sequence[str]) -> None:
    """Check that each column has a member of its own in an npz, which numpy finds by its name.

    Raises:
        ExportError: names the first that has not.
    """
    known = frozenset(names)
    for name in names:
        if "\0" in name or name.encode(errors="replace").decode() != name:
            why = f"the column {name!r} cannot be the name of a member of a zip file"
        elif f"{name}.npy" in known:
            why = f"numpy does not tell the columns {name!r} and '{name}.npy' apart"
        else:
            continue
        raise ExportError("npz", f"{why}: rename the key of the observation, in env.wrappers")


@contextmanager
def _npy_member(
    file: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Iterator[IO[bytes]]:
    """A member of an npz that an array's bytes are written to."""
    header = {"descr": dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with file.open(f"{name}.npy", "w", force_zip64=True) as member:
        write_array_header_1_0(member, header)
        yield member


def _first_action(run: FinishedRun, rows: LiveRows) -> NDArray[np.int64] | None:
    """Return the environment's first discrete action, from 0 in the replay; None if it is 0."""
    if rows.dtype["action"].base != np.int64:  # not discrete
        return None
    start = np.asarray(getattr(run.own_spaces.action, "start", 0), np.int64)
    return start if start.any() else None
