"""``vedette collect``: records episodes that a policy or a person plays."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from vedette.cli.options import (
    AllowImport,
    Arguments,
    Checkpoint,
    Settings,
    complete_environments,
    split_arguments,
)
from vedette.cli.output import say, speaking_alone
from vedette_services.errors import UsageError

BY_PERSON = "A person plays"

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
    bool,
    typer.Option(
        "--takeover",
        help="With --policy: you act where you hold a key.",
        rich_help_panel=BY_PERSON,
    ),
]


KeyActions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=ACTION",
        help="A key and its action: left=0, left+up=[-1,1]; none=1 where no key is held. "
        "[the environment's own, else arrows and digits]",
        rich_help_panel=BY_PERSON,
    ),
]


Fps = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1000,
        metavar="N",
        help="Steps per second by keyboard. [the environment's]",
        rich_help_panel=BY_PERSON,
    ),
]


EndKeys = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=REWARD",
        help="A key that ends the episode, with the reward of its last step: return=1 delete=0.",
        rich_help_panel=BY_PERSON,
    ),
]


WithGamepad = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="You act with gamepad N, the first is 0; --key and --end take its buttons' numbers.",
        rich_help_panel=BY_PERSON,
    ),
]


KeptEpisodes = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_000_000,
        metavar="N",
        help="Number of episodes to keep. [20; by keyboard until you close the window]",
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
    typer.Option("--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of the first episode."),
]


@speaking_alone()
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
    """Record demonstrations by a policy or by you. Ctrl-C keeps the complete episodes.

    They become a Minari data set. By keyboard: Esc or closing the window ends it, backspace forgets
    the episode.

    \b
    vedette collect --env CartPole-v1 --out demos    you play
    vedette collect --policy runs/cart --out demos --episodes 100
    vedette collect --policy runs/cart --out minari:cart/good-v0 --min-return 475
    vedette collect --policy my_pkg:push --env MountainCar-v0 --out demos
    vedette collect --policy runs/cart --takeover --out demos --key left=0
    """
    from vedette.collecting import (
        EpisodeSelection,
        Keyboard,
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
    texts = [*(settings or []), *more]
    config, allowed = choose_environment(player, path, env, texts, allow_import or ())
    keyboard = None
    if by_person:
        actions = _by_key("--key", key, "KEY=ACTION, as left=0 or up=[0,1]")
        ends = _by_key("--end", end, "KEY=REWARD, as return=1")
        keyboard = Keyboard(actions, fps, ends, gamepad)
    collected = record(
        out,
        config,
        player,
        EpisodeSelection(episodes or (1_000_000 if by_person else 20), min_return, seed),
        keyboard=keyboard,
        allow_import=allowed,
        say=lambda line: say(line, err=True),
    )
    say(collected)


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
    values: dict[str, Any] = {}
    for text in texts or []:
        name, _, value = text.partition("=")
        try:
            values[name] = json.loads(value)
        except ValueError as e:
            raise UsageError(f"{option} {text}: write {form}") from e
    return values or None
