"""What a run that came over the network may make this host import: what its operator allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from vedette_rl.envs.config import EnvConfig
from vedette_services.actors.errors import ImportRefusedError

_OURS = ("gymnasium.wrappers.", "vedette_rl.envs.")
"""Where modules of wrappers begin that every host has loaded anyway."""


def check_imports(env: EnvConfig, agent: Mapping[str, Any], allow_import: Collection[str]) -> None:
    """Refuse a run that imports what is not allowed here.

    Args:
        allow_import: top packages.

    Raises:
        ImportRefusedError: names the package and the mend.
    """
    for name in imported_names(env, agent):
        module = name.partition(":")[0]
        package = module.partition(".")[0]
        if package not in allow_import and not f"{module}.".startswith(_OURS):
            raise ImportRefusedError(name, package)


def imported_names(env: EnvConfig, agent: Mapping[str, Any]) -> Iterator[str]:
    """Every ``module:Name`` of a run, as it stands in its configuration."""
    if env.module is not None:
        yield env.id
    for wrapper in env.wrappers:
        yield wrapper.name
    name = agent.get("name")
    if isinstance(name, str) and ":" in name:
        yield name
