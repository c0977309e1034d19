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
from vedette.cli.output import say, speaking_alone, write

if TYPE_CHECKING:
    from vedette_rl.core import Evaluation


PolicyPlace = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's directory, an exported policy, or hf://USER/NAME.",
    ),
]


@speaking_alone()
def evaluate(
    run: PolicyPlace,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            metavar="N",
            help="Number of episodes. [as the run's evaluations: 20]",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**31 - 1,
            metavar="N",
            help="Seed of the first episode. [one that the run's evaluations did not use, because "
            "they selected the best model; evaluation.seed plays theirs again]",
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
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

    evaluation, pictures = evaluate_place(
        run,
        episodes=episodes,
        seed=seed,
        checkpoint=checkpoint,
        video=video,
        allow_import=allow_import or (),
    )
    low, high = bootstrap_interval(np.array(evaluation.returns), statistic=mean)
    interval = float(low), float(high)
    if as_json:
        write(json.dumps(evaluation_fields(evaluation, interval)))
    else:
        say(evaluation_line(evaluation, interval))
    if video is not None:
        say(f"{pictures} pictures of the first episode in {video}", err=as_json)


def evaluation_fields(evaluation: Evaluation, interval: tuple[float, float]) -> dict[str, Any]:
    """Return the object that ``--json`` prints. The interval is null below three episodes.

    `selected`: the model is the best of its run's evaluations. `fresh_seeds`: none of the episodes
    was one of those evaluations'; where both are true, the return is not biased by the selection.
    """
    return {
        "return_mean": evaluation.return_mean,
        "return_std": evaluation.return_std,
        "length_mean": evaluation.length_mean,
        "episodes": evaluation.episodes,
        "version": evaluation.version,
        "seed": evaluation.seed,
        "return_ci95": list(interval) if math.isfinite(interval[0]) else None,
        "selected": evaluation.selected,
        "fresh_seeds": evaluation.fresh_seeds,
        "max_episode_steps": evaluation.max_episode_steps,
        "episodes_cut": evaluation.cut,
    }


def evaluation_line(evaluation: Evaluation, interval: tuple[float, float]) -> str:
    """Format an evaluation as one line."""
    low, high = interval
    sure = f", 95 % interval of the mean [{low:.2f}, {high:.2f}]" if math.isfinite(low) else ""
    cut = (
        f", {evaluation.cut} of them cut at {evaluation.max_episode_steps:,}"
        if evaluation.cut
        else ""
    )
    biased = evaluation.selected and not evaluation.fresh_seeds
    return (
        f"return {evaluation.return_mean:.2f} ± {evaluation.return_std:.2f}{sure} over "
        f"{evaluation.episodes} episodes of {evaluation.length_mean:.1f} steps{cut} "
        f"(version {evaluation.version:,}, seed {evaluation.seed}"
        f"{'; selected by these episodes, so too optimistic' if biased else ''})"
    )
