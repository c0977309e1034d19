"""The ``module:Name`` of a configuration: what it imports, by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vedette_rl.envs.known_wrappers import is_known_wrapper
from vedette_rl.import_by_name import find_import_names, is_import_name


def imported_names(config: Mapping[str, Any]) -> Iterator[str]:
    """Every ``module:Name`` of a configuration, but for wrappers that need no permission.

    In the settings of agent, actors and wrappers that is any text that looks like one: what is not
    ours may import what its own settings name, and so does `FrozenEncoder`.

    Args:
        config: as a file or a message has it, whole or in part, valid or not.
    """
    yield from env_names(_table(config, "env"))
    for part in ("agent", "actors"):
        yield from find_import_names(config.get(part))
    yield from find_import_names(_table(config, "replay").get("name"))
    yield from find_import_names(_table(config, "learner").get("recorders"))


def env_names(env: Mapping[str, Any]) -> Iterator[str]:
    """Those of the environment: its id, its wrappers, and what the wrappers' arguments name."""
    env_id = env.get("id")
    if isinstance(env_id, str) and is_import_name(env_id):
        yield env_id
    for name, arguments in wrapper_calls(env):
        if not is_known_wrapper(name):
            yield name
        yield from find_import_names(arguments)


def wrapper_calls(env: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The name of each wrapper of an environment, with its arguments."""
    wrappers = env.get("wrappers")
    for wrapper in wrappers if isinstance(wrappers, Sequence) else ():
        if isinstance(wrapper, Mapping):
            yield str(wrapper.get("name", "")), wrapper.get("kwargs") or {}
        elif isinstance(wrapper, str):
            yield wrapper, {}


def package_of(name: str) -> str:
    """The top package of a ``module:Name``, as `--allow-import` takes it."""
    return name.partition(":")[0].partition(".")[0]


def _table(config: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    table = config.get(part)
    return table if isinstance(table, Mapping) else {}
