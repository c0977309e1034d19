"""Folders in which only the modules that a configuration names are looked for.

A command finds ``my_envs:Mine-v0`` in the current folder. Whatever else Python imports, it does not
look for there before such a module was found: a folder with somebody's run in it may also hold a
module with the name of a library that is not installed here.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec

_folders: list[str] = []


def search_folders() -> tuple[str, ...]:
    """The folders."""
    return tuple(_folders)


def add_search_folder(folder: str) -> None:
    """Look for named modules also in this folder, behind Python's path."""
    if folder not in (*_folders, *sys.path) and "" not in sys.path:
        _folders.append(folder)


def find_named_module(package: str) -> ModuleSpec | None:
    """The specification of a top package that a configuration names. Nothing is imported.

    Returns:
        None if there is none, or it is a module that was made and not loaded.
    """
    try:
        found = find_spec(package)
    except (ImportError, ValueError):
        return None
    return found or PathFinder.find_spec(package, _folders)


def open_search_folders(module: str) -> None:
    """Let a named module be imported; if only our folders have it, they belong to Python's path
    from then on, for what it imports itself."""
    package = module.partition(".")[0]
    if package in sys.modules or not _folders:
        return
    if find_spec(package) is None and PathFinder.find_spec(package, _folders) is not None:
        sys.path.extend(folder for folder in _folders if folder not in sys.path)
