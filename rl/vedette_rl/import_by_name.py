"""Import of names: of the custom classes that a configuration gives as ``module:Name``, and of a
package's public names at their first use."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from vedette_rl.errors import UnknownNameError
from vedette_rl.module_search import open_search_folders
from vedette_rl.script_guard import move_out

IMPORT_NAME = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
"""The regular expression of such a name."""

MOVED_MODULES = {
    "vedette_rl.envs.gamepad": "vedette_rl.teleop.gamepad",
    "vedette_rl.envs.takeover": "vedette_rl.teleop.takeover",
}
"""Modules that saved configurations may name by an earlier path, with their path now."""

_importing: ContextVar[str] = ContextVar("importing", default="")


@dataclass(frozen=True, slots=True)
class ChoiceOrImport:
    """A type of configuration text: one of these, or a custom name."""

    names: tuple[str, ...]

    def check(self, text: str) -> str:
        """The text as it is.

        Raises:
            ValueError: it is neither.
        """
        if text not in self.names and not re.fullmatch(IMPORT_NAME, text):
            known = ", ".join(map(repr, self.names))
            raise ValueError(f"must be {known} or module:Name, not {text!r}")
        return text

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        import_name = {"type": "string", "pattern": f"^{IMPORT_NAME}$"}
        return {"anyOf": [{"enum": list(self.names)}, import_name]}


def choice_or_import(*names: str) -> ChoiceOrImport:
    """A type of configuration text: one of these, or a custom name."""
    return ChoiceOrImport(names)


def is_import_name(name: str) -> bool:
    """True if a name imports something."""
    return ":" in name


def find_import_names(settings: object) -> Iterator[str]:
    """Every text in settings, however deep, that imports something."""
    match settings:
        case str() if re.fullmatch(IMPORT_NAME, settings):
            yield settings
        case Mapping():
            for inner in settings.values():
                yield from find_import_names(inner)
        case list() | tuple():
            for inner in settings:
                yield from find_import_names(inner)
        case _:
            return


def import_named_module(module: str) -> Any:
    """Import a module that a configuration names. The caller decides if that is allowed.

    One of ours that has moved is found by the path that it had before, too (`MOVED_MODULES`).
    """
    token = _importing.set(module)
    open_search_folders(module)
    try:
        return importlib.import_module(MOVED_MODULES.get(module, module))
    finally:
        _importing.reset(token)


def module_being_imported() -> str:
    """The module that is imported just now because a configuration names it; "" for none.

    Code that it runs then is not what its author wants to run: a script that trains is imported
    for its environment.
    """
    return _importing.get()


def import_by_name(key: str, name: str) -> Any:  # whatever its author made it
    """Import the object of a name. The caller decides if that is allowed.

    Args:
        key: the configuration's key, for the error.
        name: ``module:Name``.

    Raises:
        UnknownNameError: there is no such module, or nothing of that name in it; or the name is
            one that `find_import_names` would not find, so it was never allowed.
    """
    if not re.fullmatch(IMPORT_NAME, name):
        raise UnknownNameError(key, name, "it is not of the form module:Name")
    module_name, _, attribute = name.partition(":")
    try:
        module = import_named_module(module_name)
    except ModuleNotFoundError as error:
        raise UnknownNameError(key, name, describe_import_failure(module_name, error)) from error
    if not hasattr(module, attribute):
        why = f"module {module_name!r} has no {attribute!r}"
        left_out = move_out_of(module, attribute)
        raise UnknownNameError(key, name, f"{why}: {left_out}" if left_out else why)
    return getattr(module, attribute)


def move_out_of(module: Any, attribute: str) -> str:
    """Return the fix for what a module defines only where it runs as a script; "" for any other."""
    file = getattr(module, "__file__", None)
    return move_out(file, attribute) if file is not None and file.endswith(".py") else ""


def describe_import_failure(module: str, error: ModuleNotFoundError) -> str:
    """The reason why a module could not be imported: it or a module that it needs is missing."""
    missing = error.name or module
    if name := module_of_file(module):
        return f"a module is named without .py: {name!r}"
    if module == missing or module.startswith(missing + "."):
        return f"there is no module {missing!r} on Python's path or in this folder"
    return f"module {module!r} needs {missing!r}, which is not installed"


def module_of_file(text: str) -> str:
    """The module that a file is, by its path from this folder: ``./pkg/envs.py`` is ``pkg.envs``.
    "" for what names no file."""
    path = PurePath(text)
    if path.suffix != ".py":
        return ""
    is_below = not path.is_absolute() and ".." not in path.parts
    return ".".join(path.with_suffix("").parts) if is_below else path.stem


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package that loads a name at its first use.

    Args:
        modules: the module of each public name, below `vedette_rl`.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"vedette_rl.{modules[name]}"), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names
