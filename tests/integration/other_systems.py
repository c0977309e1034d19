"""The names that Python lacks on other operating systems, read from mypy's stubs of its library."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import mypy

STUBS = Path(mypy.__file__).parent / "typeshed" / "stdlib"
HERE = Path(__file__).resolve().parent / "other_system"
_MODULES = ("ctypes", "mmap", "os", "select", "signal", "socket", "stat", "sys", "tempfile", "time")
_NOT_ON_WINDOWS = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")


def names_of(module: str, platform: str) -> set[str]:
    """The names that a module of the standard library has on `sys.platform == platform`."""
    file = STUBS / f"{module}.pyi"
    tree = ast.parse((file if file.exists() else STUBS / module / "__init__.pyi").read_text())
    here = SimpleNamespace(
        platform=platform, version_info=sys.version_info, implementation=sys.implementation
    )
    return set(_names(tree.body, here))


def _names(body: Sequence[ast.stmt], here: SimpleNamespace) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.If):
            test = eval(compile(ast.Expression(statement.test), "", "eval"), {"sys": here})  # noqa: S307
            yield from _names(statement.body if test else statement.orelse, here)
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.ImportFrom):
            yield from (name.asname or name.name for name in statement.names)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
        elif isinstance(statement, ast.Assign):
            yield from (name.id for name in statement.targets if isinstance(name, ast.Name))


def environment_of(platform: str, folder: Path) -> dict[str, str]:
    """The environment in which Vedette's modules see another operating system.

    Args:
        platform: of `sys.platform`: ``darwin`` or ``win32``.
        folder: for a file that says what it lacks.
    """
    missing = {name: names_of(name, "linux") - names_of(name, platform) for name in _MODULES}
    found = {
        "platform": platform,
        "names": {name: sorted(names) for name, names in missing.items()},
        "modules": _NOT_ON_WINDOWS if platform == "win32" else (),
    }
    file = folder / f"{platform}.json"
    file.write_text(json.dumps(found), "utf-8")
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "VEDETTE_TEST_SYSTEM": str(file), "PYTHONPATH": path}
