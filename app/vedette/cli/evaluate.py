"""``vedette eval``: plays a policy of a run, of a file or of the Hugging Face Hub."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vedette.cli.options import (
    AllowImport,
    Checkpoint,
)

if TYPE_CHECKING:
    from vedette_rl.core import Evaluation


PolicyPlace = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's directory, an exported policy, or hf://USER/NAME.",
    ),
]


def evaluate(
    run: PolicyPlace,
    episodes: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="[as the run's evaluations: 20]"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**31 - 1,
            help="Of the first episode. [other episodes than those of the run's evaluations, by "
            "which the best model was selected; evaluation.seed plays those again]",
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    allow_import: AllowImport = None,
    video: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Film the first episode: .gif or .mp4.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Play the best policy of a run. Greedily, on episodes that its own evaluations did not play.

    \b
    vedette eval runs/cart
    vedette eval runs/cart --episodes 100 --json
    vedette eval runs/cart --checkpoint latest --video cart.gif
    vedette eval policy.safetensors
    vedette eval hf://me/cart-dqn
    """
    import numpy as np

    from vedette.hub import evaluate_place
    from vedette.reports.statistics import bootstrap_interval, mean

    found, pictures = evaluate_place(
        run,
        episodes=episodes,
        seed=seed,
        checkpoint=checkpoint,
        video=video,
        allow_import=allow_import or (),
    )
    low, high = bootstrap_interval(np.array(found.returns), statistic=mean)
    interval = float(low), float(high)
    if as_json:
        typer.echo(json.dumps(evaluation_fields(found, interval)))
    else:
        typer.echo(evaluation_line(found, interval))
    if video is not None:
        typer.echo(f"{pictures} pictures of the first episode in {video}", err=as_json)


def evaluation_fields(found: Evaluation, interval: tuple[float, float]) -> dict[str, Any]:
    """Return the object that ``--json`` prints. The interval is null below three episodes.

    `selected`: the model is the best of its run's evaluations. `fresh_seeds`: none of the episodes
    was one of those evaluations'; where both are true, the return is not biased by the selection.
    """
    return {
        "return_mean": found.return_mean,
        "return_std": found.return_std,
        "length_mean": found.length_mean,
        "episodes": found.episodes,
        "version": found.version,
        "seed": found.seed,
        "return_ci95": list(interval) if math.isfinite(interval[0]) else None,
        "selected": found.selected,
        "fresh_seeds": found.fresh_seeds,
        "max_episode_steps": found.max_episode_steps,
        "episodes_cut": found.cut,
    }


def evaluation_line(found: Evaluation, interval: tuple[float, float]) -> str:
    """Format an evaluation as one line."""
    low, high = interval
    sure = f", 95 % of the mean [{low:.2f}, {high:.2f}]" if math.isfinite(low) else ""
    cut = f", {found.cut} of them cut at {found.max_episode_steps:,}" if found.cut else ""
    biased = found.selected and not found.fresh_seeds
    return (
        f"return {found.return_mean:.2f} ± {found.return_std:.2f}{sure} over {found.episodes} "
        f"episodes of {found.length_mean:.1f} steps{cut} (version {found.version}, seed "
        f"{found.seed}{'; selected by these episodes, so too optimistic' if biased else ''})"
    )
