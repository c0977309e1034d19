"""What a run that came over the network may make this host import: what its operator allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from vedette_rl.envs.config import EnvConfig
from vedette_rl.named import names_in
from vedette_services.actors.errors import ImportRefusedError

_OURS = ("gymnasium.wrappers.", "vedette_rl.envs.")
"""Where modules of wrappers begin that every host has loaded anyway."""


def check_imports(
    env: EnvConfig,
    agent: Mapping[str, Any],
    allow_import: Collection[str],
    actors: Mapping[str, Any] | None = None,
) -> None:
    """Refuse a run that imports what is not allowed here.

    Args:
        env, agent, actors: the run's settings, as they travel.
        allow_import: top packages.

    Raises:
        ImportRefusedError: names the package and the mend.
    """
    for name in imported_names(env, agent, actors or {}):
        module = name.partition(":")[0]
        package = module.partition(".")[0]
        if package not in allow_import and not f"{module}.".startswith(_OURS):
            raise ImportRefusedError(name, package)


def imported_names(
    env: EnvConfig, agent: Mapping[str, Any], actors: Mapping[str, Any]
) -> Iterator[str]:
    """Every ``module:Name`` of a run, as it stands in its configuration.

    In the settings of agent and actors that is any text that looks like one: an agent that is not
    ours may import what its own settings name.
    """
    if env.module is not None:
        yield env.id
    for wrapper in env.wrappers:
        yield wrapper.name
    for settings in (agent, actors):
        yield from names_in(settings)
