"""The package loads no code and no objects from what it is sent: kept so by reading its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import vedette
import vedette_protocol
import vedette_rl
import vedette_services

PACKAGES = (vedette, vedette_protocol, vedette_rl, vedette_services)
MODULES = {
    path.relative_to(Path(str(package.__file__)).parents[1]).as_posix(): path
    for package in PACKAGES
    for path in Path(str(package.__file__)).parent.rglob("*.py")
}

FORBIDDEN_MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "jsonpickle",
    "runpy",
    "code",
    "codeop",
    "imp",
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "breakpoint"}
FORBIDDEN_ATTRIBUTES = {
    "recv_pyobj",
    "send_pyobj",
    "unsafe_load",
    "load_module",
    "exec_module",
    "locate",
    "system",
    "popen",
}

IMPORTS_BY_NAME = {
    # packages that register environments: names of our own
    "vedette_rl/envs/registry.py": 1,
    # what a configuration names: guarded by `actors/run_validation.py` where it comes from outside;
    # and names of our own, of index modules
    "vedette_rl/import_by_name.py": 2,
}
"""Where modules are imported by a name that is data, and how often."""


def test_there_is_something_to_read() -> None:
    assert len(MODULES) > 100


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_neither_unpickles_nor_evaluates_nor_imports_by_name(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text())
    found = [f"line {node.lineno}: {what}" for node, what in suspicions(tree)]
    assert not found, f"{module}: {found}"
    assert imports_by_name(tree) == IMPORTS_BY_NAME.get(module, 0)


def suspicions(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Every place that could turn data into objects or code."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for name in names:
                    if name.name.partition(".")[0] in FORBIDDEN_MODULES:
                        yield node, f"imports {name.name}"
            case ast.ImportFrom(module=str(name)) if name.partition(".")[0] in FORBIDDEN_MODULES:
                yield node, f"imports from {name}"
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                yield node, f"calls {name}"
            case ast.Attribute(attr=name) if name in FORBIDDEN_ATTRIBUTES:
                yield node, f"uses .{name}"
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                yield node.value, "allows pickle"
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                yield node.value, "starts a shell"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load")):
                yield node, "torch.load unpickles"
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="load"), keywords=given
            ) if not any(keyword.arg == "allow_pickle" for keyword in given):
                yield node, "np.load without allow_pickle=False"
            case _:
                pass


def imports_by_name(tree: ast.AST) -> int:
    """How many calls there are of `importlib.import_module`, whatever it was imported as."""
    count = 0
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="import_module")):
                count += 1
            case ast.Call(func=ast.Name(id="import_module")):
                count += 1
            case _:
                pass
    return count


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "eval('1')",
        "exec(x)",
        "__import__('os')",
        "np.load(f)",
        "np.load(f, allow_pickle=True)",
        "torch.load(f)",
        "socket.recv_pyobj()",
        "subprocess.run(x, shell=True)",
        "os.system(x)",
        "import shelve as s",
    ],
)
def test_the_reader_sees_what_it_is_to_see(text: str) -> None:
    assert list(suspicions(ast.parse(text)))


@pytest.mark.parametrize(
    ("text", "count"),
    [("importlib.import_module(x)", 1), ("import_module(x)", 1), ("import importlib", 0)],
)
def test_the_reader_counts_imports_by_name(text: str, count: int) -> None:
    assert imports_by_name(ast.parse(text)) == count
