"""``vedette config``: a configuration with every key, or its schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import (
    Agent,
    Arguments,
    Env,
    Settings,
    load_from_arguments,
)

if TYPE_CHECKING:
    pass


def config(
    arguments: Arguments = None,
    env: Env = None,
    agent: Agent = None,
    settings: Settings = None,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="The JSON schema instead: editors complete TOML by it."),
    ] = False,
) -> None:
    """Show the configuration that a run would have, or the schema of all keys. It starts nothing.

    \b
    vedette config --env Pendulum-v1                       every key, with the preset's values
    vedette config mine.toml agent.learning_rate=3e-4
    vedette config --schema > vedette.schema.json          then, at the head of your TOML file:
                                                           #:schema ./vedette.schema.json
    """
    if schema:
        from vedette_services.config.schema import config_schema

        typer.echo(json.dumps(config_schema(), indent=2))
        return
    from vedette_services.config.saving import config_text

    loaded = load_from_arguments(arguments, env, agent, settings)
    typer.echo(config_text(loaded.config, loaded.comment), nl=False)


# Names that commands and configurations know
