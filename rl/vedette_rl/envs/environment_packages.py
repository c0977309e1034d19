"""The installed packages that an environment is made of, and their versions."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from types import FunctionType, ModuleType
from typing import Any

import gymnasium as gym

from vedette_rl.envs.altering_wrappers import wrapper_chain

log = logging.getLogger("vedette.environment")

_BASES = {gym.Env.__module__, gym.vector.VectorEnv.__module__}
_OF_NO_ENVIRONMENT = sys.stdlib_module_names | {"vedette_rl", "vedette_services", "vedette"}


def environment_packages(env: Any) -> dict[str, str]:
    """Return the version of each distribution of an environment, by the distribution's name.

    These have the classes of the environment, of its wrappers and of their bases, and what the
    modules of these classes import: returns of HalfCheetah depend on MuJoCo. Files that belong to
    no distribution have no version.

    Args:
        env: an environment, or a vector of them.
    """
    names = {name for module in set(_modules(env)) for name in _imported(module)}
    found = (_distribution(name) for name in names)
    return dict(sorted(distribution for distribution in found if distribution))


def _modules(env: Any) -> Iterator[ModuleType]:
    """The modules of the classes of an environment and of its wrappers, but for those that are not
    its own: Gymnasium's base classes, Python's library (MuJoCo adds names to its builtins), ours.
    """
    for part in wrapper_chain(env):
        for base in type(part).__mro__:
            name = base.__module__
            own = name not in _BASES and name.partition(".")[0] not in _OF_NO_ENVIRONMENT
            if own and (module := sys.modules.get(name)):
                yield module


def _imported(module: ModuleType) -> Iterator[str]:
    """The top-level names of a module and of what it has imported."""
    yield module.__name__.partition(".")[0]
    for value in list(vars(module).values()):
        kind = type(value)  # not `isinstance`: a lazy proxy would load its target
        if issubclass(kind, ModuleType):
            # not `value.__name__`: a module of `importlib.util.LazyLoader` would be loaded
            yield str(object.__getattribute__(value, "__dict__").get("__name__")).partition(".")[0]
        elif issubclass(kind, type | FunctionType):
            yield str(value.__module__).partition(".")[0]


@cache
def _distribution(top_level: str) -> tuple[str, str] | None:
    """The distribution that installed a top-level module, and its version; None for none."""
    if top_level in sys.stdlib_module_names:
        return None
    try:
        return _find(top_level)
    except Exception as error:  # noqa: BLE001 - whatever others have installed, it stops no start
        log.debug("of %s no version is known: %s", top_level, error)
        return None


def _find(top_level: str) -> tuple[str, str] | None:
    """As `_distribution`.

    Raises:
        Exception: there is none, or what is written about it is damaged.
    """
    try:
        return _named(top_level)  # as most are; the search below reads all that are installed
    except metadata.PackageNotFoundError:
        path = getattr(sys.modules.get(top_level), "__file__", None) or ""
        if not {"site-packages", "dist-packages"} & set(path.replace("\\", "/").split("/")):
            return None  # somebody's own file
        return _named(metadata.packages_distributions()[top_level][0])


def _named(distribution: str) -> tuple[str, str]:
    found = metadata.metadata(distribution)
    return found["Name"] or distribution, found["Version"] or "?"
