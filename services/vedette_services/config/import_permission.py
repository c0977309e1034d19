"""Decides if what a run's own configuration names may be imported here.

What the user types is theirs. What stands in a run's directory was written by whoever began the
run, and opening the run imports and calls it. So it needs permission, as the file of a policy does:

* the user typed it in this command,
* or its package is one of ``--allow-import``,
* or this user has begun a run with it before: then a record of it lies in the user's own folder of
  state, outside of all runs, where no copied directory can bring one.

A record is of what is executed, and not of a directory: the environment with all its arguments and
wrappers, the names and other texts of the agent, each further name; and of the folders in which
their modules were found. So a run that is renamed, copied, resumed or begun again needs no
permission, and one whose arguments were changed does, and one whose modules lie elsewhere now.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import site
import sys
import sysconfig
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vedette_rl.module_search import find_named_module
from vedette_services.config.imported_names import (
    env_names,
    imported_names,
    package_of,
    wrapper_calls,
)
from vedette_services.errors import ArgumentError, ImportPermissionError, UsageError
from vedette_services.host.user_state import UserState

log = logging.getLogger("vedette")

_BEGUN = "begun"
"""The folder of records in the user's state."""

_INSTALLED = "installed"
"""The place of modules that come with Python or were installed into it."""

_NOT_FOUND = "not found"
_SESSION = "this session"

_begun_by_this_process: set[str] = set()
"""Records of the runs that this process has begun, for a user without a folder of state."""


@dataclass(frozen=True, slots=True)
class ImportingPart:
    """A part of a configuration that imports something.

    Args:
        part: the table that it is in.
        names: every ``module:Name`` in it.
        content: all that decides what it executes, as JSON.
    """

    part: str
    names: tuple[str, ...]
    content: str

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that it names."""
        return tuple(sorted(set(map(package_of, self.names))))


def importing_parts(config: Mapping[str, Any]) -> Iterator[ImportingPart]:
    """Yield the parts of a configuration that import something.

    Args:
        config: as a run's file has it.
    """
    env = config.get("env")
    if isinstance(env, Mapping) and (names := tuple(env_names(env))):
        executed = [env.get("id"), env.get("kwargs") or {}, list(wrapper_calls(env))]
        yield ImportingPart("env", names, _json("env", executed))
    for part in ("agent", "replay"):  # a custom replay gets the texts of its arguments
        names = tuple(imported_names({part: config.get(part)}))
        if names:
            yield ImportingPart(part, names, _json(part, sorted(_texts(config[part]))))
    for part in ("actors", "learner"):
        for name in imported_names({part: config.get(part)}):
            yield ImportingPart(part, (name,), _json("other", name))


def check_run_imports(
    run: Path,
    config: Mapping[str, Any],
    allow_import: Collection[str] = (),
    typed: Collection[str] = (),
    parts: Collection[str] | None = None,
) -> None:
    """Refuse what a run's own configuration imports without permission; nothing is imported.

    Args:
        run: its directory, for the error.
        config: as its file has it.
        allow_import: the packages of `--allow-import`.
        typed: every ``module:Name`` that the user typed in this command.
        parts: the tables of which something will be imported; None: all.

    Raises:
        ImportPermissionError: names the first, and the fix.
    """
    for part in importing_parts(config):
        if parts is not None and part.part not in parts:
            continue
        asked = [
            name
            for name in part.names
            if name not in typed and package_of(name) not in allow_import
        ]
        if asked and not _is_recorded(part):
            packages = tuple(sorted(set(map(package_of, asked))))
            raise ImportPermissionError(run, asked[0], packages, _moved_from(part))


def record_begun(config: Mapping[str, Any]) -> None:
    """Record that this user begins a run which imports what this configuration names.

    Args:
        config: as the run's file has it.
    """
    for part in importing_parts(config):
        places = _places(part)
        name = _record_name(part, places)
        if name in _begun_by_this_process:
            continue
        _begun_by_this_process.add(name)
        state = UserState(_BEGUN)
        record = {"imports": part.names, "places": places, "time_s": time.time()}
        try:
            if state.read(name) is None:
                state.write(name, json.dumps(record, indent=1) + "\n")
        except OSError as error:
            log.debug("what this run imports is not remembered: %s", error)


def _is_recorded(part: ImportingPart) -> bool:
    name = _record_name(part, _places(part))
    return name in _begun_by_this_process or UserState(_BEGUN).read(name) is not None


def _moved_from(part: ImportingPart) -> str:
    """Say where the modules of a part were when this user began a run with it; "" if none was."""
    state = UserState(_BEGUN)
    now = _places(part)
    for name in state.names(f"{_digest(part.content)}-*.json"):
        try:
            then = json.loads(state.read(name) or "")["places"]
            moved = [package for package, place in now.items() if then[package] != place]
        except (ValueError, KeyError, TypeError):
            continue
        if moved:
            there, here = then[moved[0]], now[moved[0]]
            return f"{moved[0]!r} was {_in(there)} when you began it, and is {_in(here)} now"
    return ""


def _in(place: str) -> str:
    return f"in {place}" if Path(place).is_absolute() else place


def _record_name(part: ImportingPart, places: Mapping[str, str]) -> str:
    return f"{_digest(part.content)}-{_digest(_json('places', dict(places)))[:16]}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _json(part: str, content: Any) -> str:  # of TOML's types
    return json.dumps([part, content], sort_keys=True, default=str)


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:  # of TOML's types
    """Yield every text in settings, with its path: a number names nothing that is executed."""
    match value:
        case str():
            yield path, value
        case Mapping():
            for key, inner in value.items():
                yield from _texts(inner, f"{path}.{key}")
        case list() | tuple():
            for index, inner in enumerate(value):
                yield from _texts(inner, f"{path}.{index}")
        case _:
            return


# Where modules are


def check_allowed(packages: Collection[str], option: str = "") -> None:
    """Refuse names to allow that no package has: they would allow nothing.

    Args:
        packages: the names.
        option: of the command line, which names one; "": a function's argument `allow_import`.

    Raises:
        UsageError: names the first, and what to write; an `ArgumentError` where it is a function's.
    """
    if isinstance(packages, str):  # a collection of its letters
        why = f"it is one text; write allow_import={[packages]!r}"
        raise ArgumentError(f"allow_import={packages!r}: {why}")
    for package in packages:
        if not isinstance(package, str):
            raise ArgumentError(f"allow_import: {package!r} is no text; write a package's name")
        if package.isidentifier():
            continue
        named = dict.fromkeys(package_of(name.strip()) for name in package.split(","))
        tops = [top for top in named if top.isidentifier()]
        fix = "name its package"
        if tops and "," in package:
            options = " ".join(f"{option} {top}" for top in tops)
            fix = f"write {options if option else f'allow_import={tops!r}'}"
        elif tops:
            fix = f"its package is {tops[0]}"
        if not option:
            raise ArgumentError(f"allow_import: {package!r} is no name of a package; {fix}")
        raise UsageError(f"{option} {package}: it is no name of a package; {fix}")


def is_importable(package: str) -> bool:
    """True if there is a package of this name. Nothing is imported."""
    return _module_folder(package) != _NOT_FOUND


def _places(part: ImportingPart) -> dict[str, str]:
    """The folder of each package that a part names. Nothing is imported."""
    return {package: _module_folder(package) for package in part.packages}


def _module_folder(package: str) -> str:
    """The folder that a module is found in, from this process."""
    if package == "__main__":
        return _SESSION
    spec = find_named_module(package)
    if spec is None:  # it was made and not loaded, is the script that runs, or is not here
        if (module := sys.modules.get(package)) is None:
            return _NOT_FOUND
        file = getattr(module, "__file__", None)
        return _SESSION if file is None else str(Path(file).resolve().parent)
    # A package without __init__.py may be in several folders.
    found = list(spec.submodule_search_locations or filter(None, [spec.origin]))
    if not spec.has_location and spec.submodule_search_locations is None:  # built into Python
        return _INSTALLED
    folders = {Path(place).resolve().parent for place in found} - _installed_folders()
    return os.pathsep.join(sorted(map(str, folders))) or _INSTALLED


@cache
def _installed_folders() -> frozenset[Path]:
    """The folders of Python's own modules and of installed packages."""
    schemes = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    folders = [*schemes, *site.getsitepackages(), site.getusersitepackages()]
    installed = {Path(folder).resolve() for folder in folders if folder}
    return frozenset(installed | {folder / "lib-dynload" for folder in installed})
