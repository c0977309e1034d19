"""``vedette eval`` plays a policy of a run, of a file or of the Hugging Face Hub; ``vedette
collect`` records what it or a person plays."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vedette.cli.options import (
    AllowImport,
    Arguments,
    Checkpoint,
    Settings,
    complete_environments,
    split_arguments,
)
from vedette_services.errors import UsageError

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


DataPlace = Annotated[
    str,
    typer.Option(
        metavar="DATA",
        help="A new folder, or minari:ID for Minari's own folder of data sets.",
    ),
]
PlayedEnv = Annotated[
    str | None,
    typer.Option(
        envvar="VEDETTE_ENV",
        metavar="ID",
        help="Environment as Gymnasium names it, or my_pkg.envs:MyEnv. [the policy's]",
        autocompletion=complete_environments,
    ),
]
Player = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="Who plays: a run's directory, an exported policy, hf://USER/NAME, or "
        "module:function of an observation. [you, by keyboard]",
    ),
]
Takeover = Annotated[
    bool, typer.Option("--takeover", help="With --policy: you act where you hold a key.")
]
KeyActions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=ACTION",
        help="A key and its action: left=0, left+up=[-1,1]; none=1 where no key is held. "
        "[the environment's own, else arrows and digits]",
    ),
]
Fps = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1000,
        help="Steps a second by keyboard. [the environment's]",
    ),
]
EndKeys = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=REWARD",
        help="A key that ends the episode, with the reward of its last step: return=1 delete=0.",
    ),
]
WithGamepad = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="You act with gamepad N, the first is 0; --key and --end take its buttons' numbers.",
    ),
]
KeptEpisodes = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_000_000,
        help="To keep. [20; by keyboard until you close the window]",
    ),
]
LeastReturn = Annotated[
    float | None,
    typer.Option(
        metavar="R",
        help="Keep only episodes with at least this return; after 100 in a row below it, stop.",
    ),
]
FirstSeed = Annotated[
    int,
    typer.Option("--seed", min=0, max=2**31 - 1, help="Of the first episode that is played."),
]


def collect(
    out: DataPlace,
    arguments: Arguments = None,
    env: PlayedEnv = None,
    policy: Player = None,
    takeover: Takeover = False,
    key: KeyActions = None,
    end: EndKeys = None,
    gamepad: WithGamepad = None,
    fps: Fps = None,
    episodes: KeptEpisodes = None,
    min_return: LeastReturn = None,
    seed: FirstSeed = 0,
    checkpoint: Checkpoint = None,
    allow_import: AllowImport = None,
    settings: Settings = None,
) -> None:
    """Record demonstrations to a Minari data set: of a policy, or of you. Ctrl-C keeps the whole
    episodes.

    By keyboard: Esc or closing the window ends it, backspace forgets the episode.

    \b
    vedette collect --env CartPole-v1 --out demos                        you play
    vedette collect --policy runs/cart --out demos --episodes 100
    vedette collect --policy runs/cart --out minari:cart/expert-v0 --min-return 475
    vedette collect --policy my_pkg:push --env MountainCar-v0 --out demos
    vedette collect --policy runs/cart --takeover --out demos --key left=0 --key right=1
    """
    from vedette.collecting import (
        Keyboard,
        Wanted,
        choose_environment,
        open_demonstrator,
    )
    from vedette.collecting import collect as record
    from vedette.hub import local_policy

    of_person = {"--key": key, "--end": end, "--gamepad": gamepad, "--fps": fps}
    by_person = _is_by_person(policy, of_person, takeover=takeover, checkpoint=checkpoint)
    player = None
    if policy is not None:
        place = str(local_policy(policy))
        player = open_demonstrator(place, checkpoint=checkpoint, allow_import=allow_import or ())
    path, more = split_arguments(arguments or [])
    config, allowed = choose_environment(player, path, env, [*(settings or []), *more])
    keyboard = None
    if by_person:
        actions = _by_key("--key", key, "KEY=ACTION, as left=0 or up=[0,1]")
        ends = _by_key("--end", end, "KEY=REWARD, as return=1")
        keyboard = Keyboard(actions, fps, ends, gamepad)
    found = record(
        out,
        config,
        player,
        Wanted(episodes or (1_000_000 if by_person else 20), min_return, seed),
        keyboard=keyboard,
        allow_import=allowed,
        say=lambda line: typer.echo(line, err=True),
    )
    typer.echo(found)


def _is_by_person(
    policy: str | None, of_person: dict[str, Any], *, takeover: bool, checkpoint: str | None
) -> bool:
    """True if a person acts.

    Raises:
        UsageError: an option is for another case.
    """
    by_person = policy is None or takeover
    given = [name for name, value in of_person.items() if value not in (None, [])]
    if not by_person and given:
        raise UsageError(f"{given[0]}: no person acts; add --takeover")
    if policy is None and (takeover or checkpoint):
        name = "--takeover" if takeover else "--checkpoint"
        raise UsageError(f"{name}: name a policy by --policy")
    return by_person


def _by_key(option: str, texts: list[str] | None, form: str) -> dict[str, Any] | None:
    """Parse ``KEY=VALUE`` texts.

    Raises:
        UsageError: one is none.
    """
    found: dict[str, Any] = {}
    for text in texts or []:
        name, _, value = text.partition("=")
        try:
            found[name] = json.loads(value)
        except ValueError as e:
            raise UsageError(f"{option} {text}: write {form}") from e
    return found or None
