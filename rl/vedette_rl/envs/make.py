"""Environments by name."""

from __future__ import annotations

import copy
import difflib
import importlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from vedette_rl.envs.config import EnvConfig, WrapperConfig
from vedette_rl.envs.spaces import Spaces, agent_spaces
from vedette_rl.errors import ImportRefusedError, UnknownEnvironmentError

Env = gym.Env[Any, Any]
AllowImport = Callable[[str], bool]
"""Whether a module of this dotted name may be imported for the one who wrote the configuration."""

_REGISTERED_BY = {"ALE": "ale_py"}
_OUR_EXTRAS = {"ALE": "atari", "Box2D": "box2d", "box2d": "box2d", "mujoco": "mujoco"}
_OUR_EXTRAS |= {"MuJoCo": "mujoco", "ale_py": "atari", "ale-py": "atari", "cv2": "atari"}
_OUR_EXTRAS |= {"opencv": "atari"}


def make_env(
    config: EnvConfig,
    *,
    allow_import: AllowImport | None = None,
    render_mode: str | None = None,
    check: bool = False,
) -> Env:
    """One environment, wrapped as configured.

    Args:
        config: which one.
        allow_import: asked before a module named in `config` is imported; None allows all (the
            operator typed it).
        render_mode: as Gymnasium has it, e.g. ``rgb_array``; None renders nothing.
        check: keep Gymnasium's checks of call order and types, which cost more than a small
            environment's step.

    Raises:
        UnknownEnvironmentError: nothing of that name can be made here, with the nearest names or
            what to install.
        ImportRefusedError: `allow_import` said no.
    """
    spec = find_spec(config, allow_import)
    kwargs: dict[str, Any] = dict(config.kwargs)
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    if not check:
        spec = copy.copy(spec)
        spec.order_enforce = False
    try:
        env: Env = gym.make(
            spec,
            max_episode_steps=config.max_episode_steps,
            disable_env_checker=None if check else True,
            **kwargs,
        )
    except (gym.error.DependencyNotInstalled, ImportError) as e:
        raise UnknownEnvironmentError(config.id, _what_to_install(e)) from e
    except TypeError as e:
        if "argument" not in str(e) or "environment creator" not in str(e):
            raise
        raise UnknownEnvironmentError(config.id, f"env.kwargs do not fit: {e}") from e
    for wrapper in config.wrappers:
        env = _wrap(env, wrapper, config, allow_import)
    return env


def probe(config: EnvConfig, *, allow_import: AllowImport | None = None) -> Spaces:
    """The spaces of an environment, seen by making one, resetting it and stepping it once under
    Gymnasium's checks (which warn).

    Raises:
        UnknownEnvironmentError: it cannot be made here.
        ImportRefusedError: `allow_import` said no.
        SpaceLayoutError: transitions of its spaces have no columns.
    """
    env = make_env(config, allow_import=allow_import, check=True)
    try:
        spaces = agent_spaces(env.observation_space, env.action_space)
        env.action_space.seed(0)
        env.reset(seed=0)
        env.step(env.action_space.sample())
    finally:
        env.close()
    return spaces


def find_spec(config: EnvConfig, allow_import: AllowImport | None = None) -> EnvSpec:
    """What is registered under a configuration's name, after the imports it asks for.

    Raises:
        UnknownEnvironmentError: nothing is.
        ImportRefusedError: `allow_import` said no.
    """
    if config.module is not None:
        _import(config.module, config, allow_import)
    namespace = config.name.rpartition("/")[0]
    if namespace in _REGISTERED_BY and config.name not in gym.registry:
        try:
            importlib.import_module(_REGISTERED_BY[namespace])
        except ModuleNotFoundError as e:
            raise UnknownEnvironmentError(config.id, _what_to_install(e)) from e
    spec = gym.registry.get(config.name)
    if spec is None:
        raise UnknownEnvironmentError(config.id, _nearest(config.name))
    return spec


def _import(module: str, config: EnvConfig, allow_import: AllowImport | None) -> Any:
    if allow_import is not None and not allow_import(module):
        raise ImportRefusedError(module, config.id)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        missing = e.name or ""
        if module == missing or module.startswith(missing + "."):
            why = f"there is no module {missing!r} on Python's path"
        else:
            why = f"module {module!r} needs {missing!r}, which is not installed"
        raise UnknownEnvironmentError(config.id, why) from e


def _wrap(
    env: Env, wrapper: WrapperConfig, config: EnvConfig, allow_import: AllowImport | None
) -> Env:
    module_name, _, attribute = wrapper.name.partition(":")
    ours = module_name == "gymnasium.wrappers"  # what Gymnasium ships may always be named
    module = _import(module_name, config, None if ours else allow_import)
    wrapper_type = getattr(module, attribute, None)
    if not (isinstance(wrapper_type, type) and issubclass(wrapper_type, gym.Wrapper)):
        raise UnknownEnvironmentError(config.id, f"{wrapper.name!r} is no gymnasium.Wrapper")
    try:
        return wrapper_type(env, **wrapper.kwargs)
    except gym.error.DependencyNotInstalled as e:
        raise UnknownEnvironmentError(config.id, _what_to_install(e)) from e
    except TypeError as e:
        raise UnknownEnvironmentError(config.id, f"wrapper {wrapper.name!r}: {e}") from e


def _what_to_install(error: Exception) -> str:
    text = " ".join(str(error).split())
    for word, extra in _OUR_EXTRAS.items():
        if word in text:
            return f"{word} is not installed: pip install 'vedette[{extra}]'"
    return text


def _nearest(name: str) -> str:
    known = sorted(gym.registry)
    by_lower = {env_id.lower(): env_id for env_id in known}
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    if nearest:
        return (
            f"no such environment is registered; nearest: {', '.join(by_lower[n] for n in nearest)}"
        )
    return (
        "no such environment is registered; one of your own is named module:Name-v0, "
        "which imports the module that registers it"
    )
