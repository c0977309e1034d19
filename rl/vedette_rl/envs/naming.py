"""Names for environments that a Python program gives as objects, so that every process can make
them.

A class or function of an importable module is ``module:Name``. A script's own are named by its
file, as other processes import it: ``train:MyEnv`` in ``train.py``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from vedette_rl.envs.registry import is_environment_maker
from vedette_rl.errors import UnknownNameError
from vedette_rl.script_guard import is_guarded, move_out
from vedette_rl.settings.plain_values import NotPlainError, plain_value

Settings = dict[str, Any]
"""Keys of the configuration's part `env`."""

_REGISTERED_EVERYWHERE = ("gymnasium", "ale_py")
"""Packages whose environments every process finds by their registered names."""

_TOP_LEVEL = "define a function at the top level of a module; functools.partial gives arguments"


def environment_table(env: object, *, shared: bool) -> Settings:
    """The settings that make an environment like `env`.

    Args:
        env: a class; a function that makes one; a `functools.partial` of either; an `EnvSpec`; or
            what `gymnasium.make` returned, of which only the `spec` is used.
        shared: other processes make it, too.

    Raises:
        UnknownNameError: they could not: says why, and what to do.
    """
    if isinstance(env, gym.Env):
        if env.spec is None:
            why = "actors make their own, and how it was made is not known: give its class"
            raise UnknownNameError("env", str(env), why)
        env = env.spec
    if isinstance(env, EnvSpec):
        return _of_spec(env, shared=shared)
    if not isinstance(env, functools.partial):
        return {"id": _name(env, shared=shared)}
    if env.args:
        raise UnknownNameError("env", str(env), "its arguments must have names")
    name = _name(env.func, shared=shared)
    return {"id": name, "kwargs": _plain(name, env.keywords)}


def _of_spec(spec: EnvSpec, *, shared: bool) -> Settings:
    """The settings of a specification: its registered name and what differs, or what makes it."""
    maker = spec.entry_point or spec.vector_entry_point
    name = maker if isinstance(maker, str) else _name(maker, shared=shared)
    registered = gym.registry.get(spec.id)
    settings = Settings()
    if registered is not None and name.partition(".")[0] in _REGISTERED_EVERYWHERE:
        name = spec.id
    else:
        registered = EnvSpec(spec.id)
    before = len(registered.additional_wrappers)
    settings["id"] = name
    if kwargs := _differing(spec.kwargs, registered.kwargs):
        settings["kwargs"] = _plain(name, kwargs)
    if spec.max_episode_steps not in (None, registered.max_episode_steps):
        settings["max_episode_steps"] = spec.max_episode_steps
    if wrappers := [_wrapper(wrapper) for wrapper in spec.additional_wrappers[before:]]:
        settings["wrappers"] = wrappers
    return settings


def _differing(kwargs: Mapping[str, Any], registered: Mapping[str, Any]) -> Settings:
    """The arguments that are not those of the registered name. Nothing is rendered in training."""
    return {
        key: value
        for key, value in kwargs.items()
        if key != "render_mode" and (key not in registered or registered[key] != value)
    }


def _wrapper(spec: Any) -> Settings:  # a WrapperSpec
    if spec.kwargs is None:
        why = "its arguments are not known: it should inherit from RecordConstructorArgs"
        raise UnknownNameError("env", f"wrapper {spec.name}", why)
    return {"name": spec.entry_point, "kwargs": _plain(f"wrapper {spec.name}", spec.kwargs)}


def _plain(name: str, kwargs: Mapping[str, Any]) -> Settings:
    """Arguments as they are written down."""
    try:
        return {key: plain_value(value, (key,)) for key, value in kwargs.items()}
    except NotPlainError as e:
        raise UnknownNameError("env", name, str(e)) from e


def _name(maker: Any, *, shared: bool) -> str:
    """``module:Name`` of a class or function."""
    if not is_environment_maker(maker):
        why = "give an id, a class, a function that makes one, an EnvSpec or a made environment"
        raise UnknownNameError("env", str(maker), why)
    name = maker.__qualname__
    module = maker.__module__
    if not name.isidentifier():  # `<lambda>`, `f.<locals>.g`, `Outer.Inner`
        why = f"other processes cannot import it: {_TOP_LEVEL}"
        raise UnknownNameError("env", name, why)
    if module == "__main__":
        module = _main_module(name, shared=shared)
    if inspect.getattr_static(sys.modules.get(module), name, None) is not maker:
        why = f"{module}.{name} is something else by now"
        raise UnknownNameError("env", f"{module}:{name}", why)
    return f"{module}:{name}"


def _main_module(name: str, *, shared: bool) -> str:
    """The name by which other processes import the program that runs here."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:  # `python -m my_pkg.train`
        module = str(spec.name)
    elif file is not None and _is_found_as(Path(file).stem, file):
        module = Path(file).stem
    elif shared:
        where = f"the script {file}" if file else "a notebook or an interactive session"
        why = (
            f"it is defined in {where}, which other processes cannot import: put it into a module "
            "(a .py file in this folder), or train with in_process=True"
        )
        raise UnknownNameError("env", name, why)
    else:
        return "__main__"
    if shared and file is not None and (why := move_out(file, name)):
        raise UnknownNameError("env", name, why)
    if shared and file is not None and (line := _unguarded_line(file)):
        why = (
            f"line {line} of {Path(file).name} would train again in each process that imports it "
            'from there: put the call under `if __name__ == "__main__":`'
        )
        raise UnknownNameError("env", name, why)
    sys.modules.setdefault(module, main)  # here it is not run a second time
    return module


def _unguarded_line(file: str) -> int:
    """The line of the program that called us, if an import of the program runs it; else 0."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "__main__":
        frame = frame.f_back
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename != file:
        return 0  # a debugger or another program runs it
    return 0 if is_guarded(file, frame.f_lineno) else frame.f_lineno


def _is_found_as(module: str, file: str) -> bool:
    """True if importing `module` runs this file."""
    spec = PathFinder.find_spec(module) if module.isidentifier() else None
    return spec is not None and spec.origin is not None and Path(spec.origin).samefile(file)
