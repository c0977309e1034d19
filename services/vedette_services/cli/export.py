"""``vedette export``: take something out of a run."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette_services.errors import NotARunError, UsageError

if TYPE_CHECKING:
    from vedette_services.finished_run import FinishedRun


def export(
    run: Annotated[Path, typer.Argument(help="A run's directory.", show_default=False)],
    format: Annotated[
        str, typer.Option("--format", help="npz, of the replay.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="What to write.")],
    what: Annotated[str, typer.Option("--what", help="replay, or policy.")] = "policy",
) -> None:
    """Take something out of a run. The replay's live rows, oldest first, one array a column.

    \b
    vedette export runs/cart --what replay --format npz --out replay.npz
    """
    from vedette_services.finished_run import FinishedRun

    found = FinishedRun.open(run)
    if (what, format) != ("replay", "npz"):
        raise UsageError(
            f"export --what {what} --format {format}: not there; --what replay --format npz is"
        )
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: name a file in a folder that exists")
    typer.echo(f"{export_replay(found, out):,} rows in {out}")


def export_replay(run: FinishedRun, out: Path) -> int:
    """Write a replay's live rows as npz; how many.

    Raises:
        NotARunError: the run has no replay.
        OneWriterError: its learner still runs.
    """
    from numpy.lib.format import write_array

    from vedette_rl.replay.export import LiveRows

    if not run.replay.is_dir():
        raise NotARunError(run.directory, "replay/")
    aside = out.with_name(f"{out.name}.{os.getpid()}.new")
    try:
        # A column at a time: numpy.savez asks for all of them in memory at once.
        with LiveRows(run.replay) as rows, zipfile.ZipFile(aside, "w") as file:
            for name in rows.names:
                with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                    write_array(member, rows.column(name), allow_pickle=False)
            count = len(rows)
        aside.replace(out)
    finally:
        aside.unlink(missing_ok=True)
    return count
