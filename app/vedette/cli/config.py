"""``vedette config``: the configuration of a run, or the schema of all keys."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from vedette.cli.options import (
    Agent,
    Arguments,
    Env,
    Settings,
    load_from_arguments,
)
from vedette.cli.output import speaking_alone, write


@speaking_alone()
def config(
    arguments: Arguments = None,
    env: Env = None,
    agent: Agent = None,
    settings: Settings = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every key; those that are not set as comments.")
    ] = False,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="The JSON schema instead: editors complete TOML by it."),
    ] = False,
) -> None:
    """Show the configuration that a run would have. It starts nothing.

    It refuses what a run refuses before it makes the environment: unknown names, and settings that
    contradict each other. Without --all it shows what a first run needs and what you set; a run of
    it has these values.

    \b
    vedette config --env Pendulum-v1    what a first run needs, with the preset
    vedette config mine.toml agent.learning_rate=3e-4 --all
    vedette config --schema > vedette.schema.json

    The first line of a TOML file names the schema: #:schema ./vedette.schema.json
    """
    if schema:
        from vedette_services.config.schema import config_schema

        write(json.dumps(config_schema(), indent=2))
        return
    from vedette_services.config.printing import complete_text, first_text
    from vedette_services.config.probing import EnvironmentProbe
    from vedette_services.run.checks import check_names_and_settings

    with EnvironmentProbe() as probe:
        loaded = load_from_arguments(arguments, env, agent, settings, probe=probe)
        check_names_and_settings(loaded.config, probe)
    if every:
        text = complete_text(loaded.config, loaded.comment)
    else:
        text = first_text(loaded.config, loaded.comment, loaded.given)
    write(text, nl=False)
