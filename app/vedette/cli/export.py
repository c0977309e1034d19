"""``vedette export``: the policy or the replay of a run in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vedette.cli.options import AllowImport, Checkpoint, RunArgument
from vedette.cli.output import say, speaking_alone


@speaking_alone()
def export(
    run: RunArgument,
    format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="onnx, safetensors or numpy, of the policy; npz or minari, of the replay.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="What to write.")],
    what: Annotated[
        str, typer.Option("--what", metavar="WHAT", help="policy, or replay.")
    ] = "policy",
    checkpoint: Checkpoint = None,
    allow_import: AllowImport = None,
) -> None:
    """Export a policy or the replay of a run. The best policy, or the live rows, oldest first.

    \b
    vedette export runs/cart --format onnx --out policy.onnx
    vedette export runs/cart --format numpy --out policy.npz
    vedette export runs/cart --format numpy --checkpoint latest --out last.npz
    vedette export runs/cart --what replay --format npz --out replay.npz
    vedette export runs/cart --what replay --format minari --out cart
    """
    from vedette.exporting import check_export, export_policy, export_replay
    from vedette_services.errors import UsageError
    from vedette_services.run.finished import FinishedRun

    finished = FinishedRun.open(run, allow_import or ())
    check_export(what, format, out)
    if checkpoint is not None and what != "policy":
        raise UsageError(f"--checkpoint {checkpoint}: a {what} is no part of a checkpoint")
    if what == "replay":
        count = export_replay(finished, format, out, say)
        say(f"{count:,} {'episodes' if format == 'minari' else 'rows'} in {out}")
        return
    kept = export_policy(finished, format, out, checkpoint)
    say(f"the policy of version {kept.model.version:,} in {out}")
