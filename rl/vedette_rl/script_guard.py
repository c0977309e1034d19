"""The guard of a script, ``if __name__ == "__main__":``: an import leaves out what is below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def is_guarded(file: str, line: int) -> bool:
    """Return True if a line of a script is left out where the script is imported."""
    return any(
        guard.lineno <= line <= (guard.end_lineno or guard.lineno)
        for guard in _guards(_parse(file))
    )


def guarded_definition(file: str, name: str) -> int:
    """Return the line of a class or function that a script defines where it runs, and leaves out
    where it is imported; 0 if it has none of that name, or also has it in an import."""
    tree = _parse(file)
    guarded = {node for guard in _guards(tree) for node in ast.walk(guard)}
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    lines = [(node in guarded, node.lineno) for node in statements if _defines(node, name)]
    if not lines or not all(is_left_out for is_left_out, _ in lines):
        return 0
    return lines[-1][1]


def move_out(file: str, name: str) -> str:
    """Return the fix for a name that a script defines only where it runs; "" for any other."""
    if not Path(file).is_file() or not (line := guarded_definition(file, name)):
        return ""
    return (
        f'line {line} of {Path(file).name} defines it below `if __name__ == "__main__":`, which '
        "an import leaves out: move it above that, or into a module"
    )


def _parse(file: str) -> ast.Module:
    return ast.parse(Path(file).read_bytes())


def _guards(tree: ast.Module) -> Iterator[ast.If]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            names = {name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)}
            if "__name__" in names:
                yield node


def _defines(node: ast.stmt, name: str) -> bool:
    match node:
        case ast.ClassDef() | ast.FunctionDef():
            return node.name == name
        case ast.Assign():
            return any(isinstance(one, ast.Name) and one.id == name for one in node.targets)
        case ast.ImportFrom() | ast.Import():
            return any((one.asname or one.name) == name for one in node.names)
        case _:
            return False
