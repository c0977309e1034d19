"""``vedette eval``: play the best policy of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vedette_rl.core import Evaluation
    from vedette_services.finished_run import FinishedRun


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run's directory.", show_default=False)],
    episodes: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="[as the run's evaluations: 20]", show_default=False),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**31 - 1,
            help="Of the first episode. [as the run's evaluations, which gives the same return]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Play the best policy of a run. Greedily, and as its own evaluations did.

    \b
    vedette eval runs/cart
    vedette eval runs/cart --episodes 100 --json
    """
    from vedette_services.finished_run import FinishedRun

    found = play(FinishedRun.open(run), episodes, seed)
    if as_json:
        typer.echo(json.dumps(fields(found)))
        return
    typer.echo(
        f"return {found.return_mean:.2f} ± {found.return_std:.2f} over {found.episodes} episodes "
        f"of {found.length_mean:.1f} steps (version {found.version}, seed {found.seed})"
    )


def play(run: FinishedRun, episodes: int | None, seed: int | None) -> Evaluation:
    """Play a run's best policy as its own evaluations did, unless told otherwise."""
    import numpy as np

    from vedette_rl.agents.registry import agent_type
    from vedette_rl.envs.make import probe
    from vedette_rl.evaluation.greedy import GreedyEvaluator

    config, best = run.config, run.best().model
    evaluator = GreedyEvaluator(
        config.env,
        episodes or config.evaluation.episodes,
        config.evaluation.seed if seed is None else seed,
    )
    try:
        policy = agent_type(config.agent.name).build_policy(
            config.agent, probe(config.env), positions=np.zeros(1), seed=config.seed
        )
        policy.sync_model(best)
        return evaluator.evaluate(policy, best.version)
    finally:
        evaluator.close()


def fields(found: Evaluation) -> dict[str, float]:
    """What ``--json`` prints."""
    return {
        "return_mean": found.return_mean,
        "return_std": found.return_std,
        "length_mean": found.length_mean,
        "episodes": found.episodes,
        "version": found.version,
        "seed": found.seed,
    }
