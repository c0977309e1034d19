"""The specification behind an environment's name: of Gymnasium's registry, or of a custom class
or function."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import sysconfig
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from vedette_rl.envs.config import OWN_KEYS, UNNAMED, EnvConfig
from vedette_rl.envs.foreign_environments import (
    GYM_ID,
    explain_foreign,
    is_registered_with_gym,
)
from vedette_rl.envs.known_packages import package_hint, submodule_hint
from vedette_rl.errors import ImportNotAllowedError, UnknownEnvironmentError
from vedette_rl.import_by_name import (
    describe_import_failure,
    import_named_module,
    move_out_of,
)

AllowImport = Callable[[str], bool]
"""Decides if a module of this dotted name may be imported for the author of a configuration."""

_REGISTERED_BY = {"ALE": "ale_py"}
_OUR_EXTRAS = {
    "Box2D": "box2d",
    "box2d": "box2d",
    "MuJoCo": "mujoco",
    "mujoco": "mujoco",
    "ale_py": "atari",
    "opencv": "atari",
    "cv2": "atari",
    "pygame": "video",
}


def find_spec(config: EnvConfig, allow_import: AllowImport | None = None) -> EnvSpec:
    """The specification behind a configuration's name, after the imports that it needs.

    Raises:
        UnknownEnvironmentError: nothing is.
        ImportNotAllowedError: `allow_import` refused.
    """
    module = None
    before = frozenset(gym.registry)
    if config.module is not None:
        module = import_environment_module(config.module, config, allow_import)
    namespace = config.name.rpartition("/")[0]
    if namespace in _REGISTERED_BY and config.name not in gym.registry:
        try:
            _register(namespace)
        except ModuleNotFoundError as e:
            raise UnknownEnvironmentError(config.id, install_hint(e)) from e
    spec = gym.registry.get(config.name)
    if spec is None and module is not None:
        return _own_spec(config, module, before)
    if spec is None and config.is_declared and config.id == UNNAMED:
        why = "the spaces are declared, and no environment is named: set env.id for its actors"
        raise UnknownEnvironmentError(config.id, why)
    if spec is None:
        raise UnknownEnvironmentError(config.id, _nearest(config.name))
    return spec


def _own_spec(config: EnvConfig, module: Any, before: frozenset[str]) -> EnvSpec:
    """The specification of a class or function of a user's module, as if it were registered.

    Args:
        before: ids that were registered before the module was imported here.
    """
    maker = getattr(module, config.name, None)
    if maker is None:
        raise UnknownEnvironmentError(config.id, _describe_module(config, module, before))
    if not is_environment_maker(maker):
        foreign = explain_foreign(maker) if inspect.isclass(maker) else ""
        why = f"it is no class of gymnasium.Env and no function that makes one{foreign}"
        raise UnknownEnvironmentError(config.id, why)
    home = maker.__module__
    # Allowing a package allows what is defined in it, and not what it has imported.
    if sys.modules.get(home) is not module and _top(home) != _top(module.__name__):
        why = f"it is defined in {home!r}: name it {home}:{maker.__qualname__}"
        raise UnknownEnvironmentError(config.id, why)
    is_vector = inspect.isclass(maker) and issubclass(maker, gym.vector.VectorEnv)
    form = "vector_entry_point" if is_vector else "entry_point"
    return EnvSpec(config.id, **{form: maker})


def is_environment_maker(value: object) -> bool:
    """True for a class of environments, one or a vector of them, and for a Python function."""
    if inspect.isclass(value):
        return issubclass(value, (gym.Env, gym.vector.VectorEnv))
    return inspect.isfunction(value)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _place_in_python(module: Any) -> str:
    """Where a module of Python's standard library lies; "" of any other."""
    if _top(module.__name__) not in sys.stdlib_module_names | {"test"}:
        return ""
    place: str | None = getattr(module, "__file__", None)
    if place is None:
        return "built in"
    library = Path(sysconfig.get_path("stdlib"))
    inside = Path(place).is_relative_to(library) and "site-packages" not in Path(place).parts
    return place if inside else ""


def _describe_module(config: EnvConfig, module: Any, before: frozenset[str]) -> str:
    """Say that a module has no such environment, and which it has."""
    if config.module == "__main__":
        return (
            "it was defined in a notebook or an interactive session, and is not in this one: "
            "put it into a module"
        )
    if is_registered_with_gym(config.name):
        return GYM_ID
    why = (
        f"module {config.module!r} registers no environment {config.name!r} and has no class or "
        "function of that name"
    )
    if own := _place_in_python(module):
        return f"module {config.module!r} is Python's own ({own}): give yours another name"
    if left_out := move_out_of(module, config.name):
        return f"{why}: {left_out}"
    if ids := _registered_by(module, before):
        nearest = sorted(ids, key=lambda env_id: (-_likeness(env_id, config.name), env_id))
        more = f" and {len(ids) - _MOST_IDS:,} more" if len(ids) > _MOST_IDS else ""
        why += f"; it registers {', '.join(nearest[:_MOST_IDS])}{more}"
    elif inside := submodule_hint(module, config.name):
        return f"{why}{inside}"
    defined = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and (is_environment_maker(value) or explain_foreign(value))
    ]
    have = f"; it has {', '.join(defined[:3])}" if defined else ""
    return f"{why}{have}"


_MOST_IDS = 5


def _registered_by(module: Any, before: frozenset[str]) -> list[str]:
    """The ids that a module registers: those that its import has added, and, where something else
    had imported it before, those that are made by its package."""
    package = _top(module.__name__)
    return [
        env_id
        for env_id, spec in gym.registry.items()
        if env_id not in before or package in (_package_of(spec), _top(env_id.rpartition("/")[0]))
    ]


def _package_of(spec: EnvSpec) -> str:
    maker = spec.entry_point or spec.vector_entry_point
    return _top(maker if isinstance(maker, str) else getattr(maker, "__module__", ""))


def _likeness(env_id: str, name: str) -> float:
    return difflib.SequenceMatcher(None, env_id.lower(), name.lower()).ratio()


def _register(namespace: str) -> None:
    """Have the package behind a namespace register its environments."""
    module: Any = importlib.import_module(_REGISTERED_BY[namespace])
    # ALE would greet in every process that makes an environment.
    if hasattr(module, "ALEInterface"):
        module.ALEInterface.setLoggerMode(module.LoggerMode.Error)


def takes(entry_point: Any, argument: str) -> bool:
    """True if an environment's constructor has an argument of this name.

    Args:
        entry_point: what makes it, or its name, as an `EnvSpec` has it.
    """
    is_name = isinstance(entry_point, str)
    creator = gym.envs.registration.load_env_creator(entry_point) if is_name else entry_point
    try:
        return argument in inspect.signature(creator).parameters
    except (TypeError, ValueError):  # it has no signature
        return False


def check_own_keys(config: EnvConfig, entry_point: Any, *, always: Collection[str] = ()) -> None:
    """Check that `env.kwargs` has no argument that Gymnasium's `make` would take, and not the
    environment's constructor.

    Args:
        entry_point: see `takes`.
        always: those that are none of the constructor's, whatever it has.

    Raises:
        UnknownEnvironmentError: names the setting to use.
    """
    for key in config.kwargs:
        if key in OWN_KEYS and (key in always or not takes(entry_point, key)):
            why = f"env.kwargs.{key} is not the constructor's; use {OWN_KEYS[key]}"
            raise UnknownEnvironmentError(config.id, why)


def import_environment_module(
    module: str, config: EnvConfig, allow_import: AllowImport | None
) -> Any:
    """Import a module that a configuration names.

    Raises:
        ImportNotAllowedError: `allow_import` refused.
        UnknownEnvironmentError: it is not here, or needs what is not.
    """
    if allow_import is not None and not allow_import(module):
        raise ImportNotAllowedError(module, config.id)
    try:
        return import_named_module(module)
    except ModuleNotFoundError as e:
        raise UnknownEnvironmentError(config.id, describe_import_failure(module, e)) from e


def install_hint(error: Exception) -> str:
    """One line with the package that an import error misses, and our extra that has it."""
    text = " ".join(str(error).split())
    for word, extra in _OUR_EXTRAS.items():
        if word in text:
            return f"{word} is not installed: pip install 'vedette[{extra}]'"
    return text


def _nearest(name: str) -> str:
    """A hint with the package that is known for such a name, or the nearest registered names,
    whatever their version and namespace."""
    if named := package_hint(name):
        return f"no such environment is registered; {named}"
    known = set(gym.registry)
    for namespace in _REGISTERED_BY:
        with contextlib.suppress(ImportError):
            _register(namespace)
            # Other environments that it registers, under bare names, are ignored.
            known |= {env_id for env_id in gym.registry if env_id.startswith(f"{namespace}/")}
    by_bare: dict[str, list[str]] = {}
    for env_id in sorted(known, key=_plain_and_new_first):
        by_bare.setdefault(_bare(env_id), []).append(env_id)
    alike = difflib.get_close_matches(_bare(name), by_bare, n=3, cutoff=0.7)
    if nearest := [env_id for bare in alike for env_id in by_bare[bare]]:
        return f"no such environment is registered; nearest: {', '.join(nearest[:3])}"
    return (
        "no such environment is registered; one of your own is named module:MyEnv, its class, or "
        f"module:Name-v0, if the module registers it{_atari_hint(name)}"
    )


def _atari_hint(name: str) -> str:
    """Name the Atari game that may be meant, where they are not installed; else ""."""
    game = re.fullmatch(r"([A-Z]\w*?)(?:-ram)?(?:NoFrameskip|Deterministic)?-v[045]", name)
    if game is None or importlib.util.find_spec("ale_py"):
        return ""
    return f"; an Atari game is ALE/{game[1]}-v5, with pip install 'vedette[atari]'"


def _bare(env_id: str) -> str:
    return env_id.rpartition("/")[2].rpartition("-v")[0].lower() or env_id.lower()


def _plain_and_new_first(env_id: str) -> tuple[bool, int, str]:
    version = env_id.rpartition("-v")[2]
    return "/" in env_id, -int(version) if version.isdecimal() else 0, env_id


UNLIMITED_STEPS = 1000
"""Steps of an episode at most, where an environment names no limit: that of most benchmarks."""

_LIMIT_ATTRIBUTES = ("max_episode_steps", "_max_episode_steps", "max_steps")
"""Attributes in which environments keep the limit that they apply themselves."""


def step_limit(env: gym.Env[Any, Any]) -> int | None:
    """Steps after which Gymnasium or ALE ends an episode; None if nothing is known of that."""
    spec = env.spec
    if spec is None:
        return None
    frames = spec.kwargs.get("max_num_frames_per_episode")  # ALE's, at least one a step
    return spec.max_episode_steps or (int(frames) if frames else None)


def find_episode_bound(env: gym.Env[Any, Any]) -> int:
    """Steps at which evaluations cut an episode, unless they are told otherwise.

    The environment's own limit. Where none is known it is `UNLIMITED_STEPS`, or more if the
    environment has a greater limit in one of the usual attributes.
    """
    if limit := step_limit(env):
        return limit
    limits = (
        env.get_wrapper_attr(name) for name in _LIMIT_ATTRIBUTES if env.has_wrapper_attr(name)
    )
    return max([UNLIMITED_STEPS, *(value for value in limits if isinstance(value, int))])
