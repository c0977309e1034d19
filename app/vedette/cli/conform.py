"""``vedette conform``: does a client keep the wire's rules?"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import Agent, Env, Settings, load_from_arguments
from vedette.cli.output import say, speaking_alone, write

if TYPE_CHECKING:
    from vedette_services.config.run_config import RunConfig


_GREEDY = ["agent.exploration.kind=constant", "agent.exploration.epsilon_final=0"]
"""So that actions can be judged."""


_SMALL = ["actors.n_buffer=8", "actors.envs_per_actor=1", "actors.window_batches=64"]


@speaking_alone()
def conform(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND...",
            help="Starts the client. {learner}, {host} and {port} stand for the learner's address, "
            "{keys} for a folder of its keys.",
        ),
    ],
    env: Env = None,
    agent: Agent = None,
    settings: Settings = None,
    scene: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this one: deliveries, kills, over, refusal or keys. [all]",
        ),
    ] = None,
    start: Annotated[
        float,
        typer.Option(min=1.0, metavar="SECONDS", help="Time for the client to connect."),
    ] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a client of your own against the wire's rules. It connects to a scripted learner.

    The client also finds the address in VEDETTE_LEARNER, VEDETTE_HOST and VEDETTE_PORT. It is
    started once for each scene, and killed at its end. One line per rule: kept, broken or not seen,
    what was expected, and what came. Exit status 0: none is broken; 1: one is.

    \b
    vedette conform vedette actors --learner {learner} --count 1
    vedette conform --env Pendulum-v1 python robot.py {learner}
    vedette conform clients/c/cartpole {host} {port} c-1 {keys}
    """
    from vedette.conformance import SCENES, Script
    from vedette_services.errors import UsageError

    for name in scene or ():
        if name not in SCENES:
            raise UsageError(f"--scene {name}: there are {', '.join(SCENES)}")
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]}: there is no such program; name the client's by its path")
    config = load_conformance_config(env or "CartPole-v1", agent, settings or [])
    findings = Script(config, command, start).play(scene or ())
    if as_json:
        verdicts = {rule: {"verdict": v, "came": c} for rule, (v, c) in findings.verdicts.items()}
        write(json.dumps(verdicts, indent=2))
    else:
        for line in findings.lines():
            say(line)
    raise typer.Exit(1 if findings.broken else 0)


def load_conformance_config(env: str, agent: str | None, settings: Sequence[str]) -> RunConfig:
    """Load the run that `vedette conform` announces: small batches, and no exploration by DQN.

    Raises: as `load_from_arguments`.
    """
    config = load_from_arguments(None, env, agent, [*_SMALL, *settings]).config
    if config.agent.name != "dqn":
        return config
    return load_from_arguments(None, env, agent, [*_SMALL, *_GREEDY, *settings]).config
