"""``vedette export``: take something out of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vedette_services.errors import UsageError

FORMATS = {"policy": ("onnx", "safetensors", "numpy"), "replay": ("npz", "minari")}


def export(
    run: Annotated[Path, typer.Argument(help="A run's directory.", show_default=False)],
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help="onnx, safetensors or numpy, of the policy; npz or minari, of the replay.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="What to write.")],
    what: Annotated[str, typer.Option("--what", help="policy, or replay.")] = "policy",
) -> None:
    """Take something out of a run. The best policy, or the replay's live rows, oldest first.

    \b
    vedette export runs/cart --format onnx --out policy.onnx
    vedette export runs/cart --format numpy --out policy.npz      acts without torch
    vedette export runs/cart --what replay --format npz --out replay.npz
    vedette export runs/cart --what replay --format minari --out cart     a folder: its episodes
    """
    from vedette_services.finished_run import FinishedRun

    found = FinishedRun.open(run)
    _check_format(what, format)
    if format == "minari" and out.exists():
        raise UsageError(f"--out {out}: it is there already; a Minari dataset is a new folder")
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: name a file in a folder that exists")
    if what == "replay":
        from vedette_services.exporting import export_replay

        typer.echo(f"{export_replay(found, format, out)} in {out}")
        return
    from vedette_services.exporting import export_policy

    best = export_policy(found, format, out)
    typer.echo(f"the policy of version {best.model.version:,} in {out}")


def _check_format(what: str, format: str) -> None:
    if what not in FORMATS:
        raise UsageError(f"--what {what}: not known; policy and replay are")
    if format not in FORMATS[what]:
        known = ", ".join(FORMATS[what])
        raise UsageError(f"--format {format}: a {what} is exported as {known}")
