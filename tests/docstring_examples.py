"""Finds the examples in docstrings, and checks their calls by the signatures of what they call.

An example is the indented block behind a line that ends with ``::``. It is read, not run: what it
builds on (a run, a fleet, a GPU) is rarely there. The class of a variable is known where the
example assigns it, where the variable is a word of the class that the docstring documents
(``handover``: `HandoverWriter`), where a class has its name (``ledger``: `Ledger`), or from
`CONVENTIONS`.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import logging
import pkgutil
import random
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch

import vedette
import vedette_protocol
import vedette_rl
import vedette_services
from vedette_rl.envs.vector_env import VectorEnvironment
from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.run.directory import RunDirectory

PACKAGES = (vedette_protocol, vedette_rl, vedette_services, vedette)
ENTRY_POINTS = {"__main__", "starter"}
"""Modules that run when they are imported, and files that `vedette init` writes."""


@dataclass(frozen=True)
class Example:
    """A block of one docstring.

    Args:
        owner: the class that it documents, also by a method; None: of a module or a function.
    """

    module: ModuleType
    place: str
    owner: type | None
    text: str


@dataclass(frozen=True)
class Instance:
    """An object of one of these classes.

    Args:
        added: attributes that a class of the example adds to its base, by name.
    """

    classes: tuple[type, ...]
    added: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class Bound:
    """Something that is called: `signature` is None where it takes anything."""

    name: str
    signature: inspect.Signature | None
    result: object


UNKNOWN = object()

IMPORTED: dict[str, object] = {
    "log": logging.getLogger(__name__),
    "np": np,
    "random": random,
    "torch": torch,
    "vedette": vedette,
}
"""What examples use without importing it."""

CONVENTIONS: dict[str, tuple[type, ...]] = {
    "envs": (VectorEnvironment,),
    "replay": (UniformReplay,),
    "ring": (RingWriter,),
    "run": (RunDirectory,),
}
"""Classes of variables that several modules call so."""


@cache
def modules() -> tuple[ModuleType, ...]:
    """All modules of the four packages."""
    names = []
    for package in PACKAGES:
        names.append(package.__name__)
        inner = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        names += [info.name for info in inner if ENTRY_POINTS.isdisjoint(info.name.split("."))]
    return tuple(importlib.import_module(name) for name in names)


@cache
def public_names() -> dict[str, list[Any]]:
    """Every public class and function of the packages, by its name."""
    names = defaultdict(list)
    for module in modules():
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_"):
                names[name].append(value)
    return dict(names)


def examples() -> Iterator[Example]:
    """Every block of every docstring that is Python."""
    for module in modules():
        tree = ast.parse(inspect.getsource(module))
        yield from _examples_of(module, tree, module.__name__, None)


def _examples_of(
    module: ModuleType, node: ast.AST, place: str, owner: type | None
) -> Iterator[Example]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        for text in literal_blocks(ast.get_docstring(node) or ""):
            yield Example(module, place, owner, text)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            kind = getattr(owner or module, child.name, None)
            inner = kind if isinstance(kind, type) else owner
            yield from _examples_of(module, child, f"{place}:{child.name}", inner)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _examples_of(module, child, f"{place}:{child.name}", owner)


def literal_blocks(text: str) -> Iterator[str]:
    """The indented blocks behind ``::``."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not line.rstrip().endswith("::"):
            continue
        indent = len(line) - len(line.lstrip())
        block = []
        for following in lines[number + 1 :]:
            if following.strip() and len(following) - len(following.lstrip()) <= indent:
                break
            block.append(following)
        yield textwrap.dedent("\n".join(block)).strip()


def is_python(text: str) -> bool:
    """Whether a block is to be read as Python: not a directory's files, a tree or TOML."""
    try:
        ast.parse(text)
    except SyntaxError:
        return bool(re.search(r"^[\w.]+ = [\w.]+\(|^\w+\.\w+\(|^(for|with|while) .*:", text, re.M))
    return True


def faults(example: Example, placeholders: frozenset[str]) -> list[str]:
    """What the example says that is not so.

    Args:
        placeholders: functions and objects of the reader, of which nothing is known.
    """
    try:
        tree = ast.parse(example.text)
    except SyntaxError as error:
        return [f"is not Python: {error}"]
    reader = _Reader(example, placeholders)
    reader.visit(tree)
    return reader.faults


def snake(name: str) -> str:
    """``HandoverWriter`` as ``handover_writer``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _words(kind: type) -> list[str]:
    return snake(kind.__name__).split("_")


class _Reader(ast.NodeVisitor):
    """Goes through an example, and knows what its names are as far as it says so."""

    def __init__(self, example: Example, placeholders: frozenset[str]) -> None:
        self.faults: list[str] = []
        self._example = example
        self._placeholders = placeholders
        self._scope: dict[str, object] = {}

    # Statements

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            module = importlib.import_module(alias.name)
            self._scope[alias.asname or alias.name] = module

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = importlib.import_module(node.module or "")
        for alias in node.names:
            if not hasattr(module, alias.name):
                self._add(f"{node.module} has no {alias.name}")
            self._scope[alias.asname or alias.name] = getattr(module, alias.name, UNKNOWN)

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self._value(node.value)
        for target in node.targets:
            self._assign(target, value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._value(node)

    def visit_For(self, node: ast.For) -> None:
        self._value(node.iter)
        self._assign(node.target, UNKNOWN)
        self._visit_all([*node.body, *node.orelse])

    def visit_If(self, node: ast.If) -> None:
        self._value(node.test)
        match node.test:
            case ast.Call(func=ast.Name("isinstance" | "implements"), args=[ast.Name(name), kind]):
                before = dict(self._scope)
                self._scope[name] = self._annotation(kind)
                self._visit_all(node.body)
                self._scope = before
            case _:
                self._visit_all(node.body)
        self._visit_all(node.orelse)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            value = self._value(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, value)
        self._visit_all(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self._value(decorator)
        bases = [self._value(base) for base in node.bases]
        base = next((base for base in bases if isinstance(base, type)), None)
        methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
        makes = any(method.name == "__init__" for method in methods)
        self._scope[node.name] = UNKNOWN if base is None or makes else base
        added = {
            child.target.id: self._annotation(child.annotation)
            for child in node.body
            if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
        }
        for child in ast.walk(node):
            if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
                added.setdefault(child.attr, UNKNOWN)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                self._visit_method(statement, base, added)
            else:
                self.visit(statement)

    def _annotation(self, node: ast.expr) -> object:
        value = self._value(node)
        return Instance((value,)) if isinstance(value, type) and _is_ours(value) else UNKNOWN

    def _visit_method(
        self, node: ast.FunctionDef, base: type | None, added: dict[str, object]
    ) -> None:
        """A method of the example takes what the one that it overrides takes."""
        arguments = node.args
        taken = [*arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
        names = [argument.arg for argument in taken if argument is not None]
        if base is not None and node.name != "__init__" and _is_ours(base):
            overridden = getattr(base, node.name, None)
            if overridden is None:
                self._add(f"{base.__name__} has no {node.name}")
            elif names != (expected := list(inspect.signature(overridden).parameters)):
                self._add(f"{base.__name__}.{node.name} takes {expected}, not {names}")
        before = dict(self._scope)
        self._scope |= dict.fromkeys(names, UNKNOWN)
        if base is not None:
            self._scope["self"] = Instance((base,), tuple(added.items()))
        self._visit_all(node.body)
        self._scope = before

    def visit_Expr(self, node: ast.Expr) -> None:
        self._value(node.value)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr):
            self._value(node)
        else:
            super().generic_visit(node)

    def _visit_all(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def _assign(self, target: ast.expr, value: object) -> None:
        if isinstance(target, ast.Name):
            self._scope[target.id] = value
        elif isinstance(target, ast.Tuple):
            for element in target.elts:
                self._assign(element, UNKNOWN)
        else:
            self._value(target)

    # Expressions

    def _value(self, node: ast.expr) -> object:
        match node:
            case ast.Name():
                return self._name(node.id)
            case ast.Attribute():
                return self._attribute(self._receiver(node.value), node.attr)
            case ast.Call():
                return self._call(node)
            case ast.NamedExpr(target=target, value=inner):
                value = self._value(inner)
                self._assign(target, value)
                return value
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._value(test)
                value = self._value(body)
                self._value(orelse)
                return value
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                for generator in node.generators:
                    self._value(generator.iter)
                    self._assign(generator.target, UNKNOWN)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._value(child)
            elif isinstance(child, ast.keyword):
                self._value(child.value)
        return UNKNOWN

    def _name(self, name: str) -> object:
        """What a name stands for; UNKNOWN where nothing says so."""
        for names in (self._scope, vars(self._example.module), vars(builtins), IMPORTED):
            if name in names:
                return names[name]
        if name in self._placeholders:
            return UNKNOWN
        known = public_names().get(name, [])
        package = self._example.module.__name__.split(".")[0]
        near = [value for value in known if value.__module__.split(".")[0] == package]
        for values in (known, near):
            if len(values) == 1:
                return values[0]
        return UNKNOWN

    def _receiver(self, node: ast.expr) -> object:
        """What an attribute is taken of: the name of a variable tells its class if need be."""
        if not isinstance(node, ast.Name) or node.id in self._scope:
            return self._value(node)
        name = node.id
        module = self._example.module
        if name in vars(module) or name in IMPORTED or name in self._placeholders:
            return self._value(node)
        owner = self._example.owner
        if owner is not None and name in _words(owner):
            return Instance((owner,))
        classes = [kind for kind in vars(module).values() if isinstance(kind, type)]
        defined = [kind for kind in classes if kind.__module__ == module.__name__]
        anywhere = [
            kind for kinds in public_names().values() for kind in kinds if isinstance(kind, type)
        ]
        for kinds in (
            [kind for kind in defined if snake(kind.__name__) == name],
            [kind for kind in defined if name in _words(kind)],
            [kind for kind in classes if snake(kind.__name__) == name],
            CONVENTIONS.get(name, ()),
            [kind for kind in anywhere if snake(kind.__name__) == name],
        ):
            if len(kinds) == 1:
                return Instance((kinds[0],))
        value = self._value(node)
        if value is UNKNOWN:
            self._add(f"nothing says what {name} is")
        return value

    def _attribute(self, value: object, name: str) -> object:
        if isinstance(value, Instance):
            if name in (added := dict(value.added)):
                return added[name]
            members = [member for kind in value.classes for member in _members(kind, name)]
            if not members:
                kinds = " or ".join(kind.__name__ for kind in value.classes)
                self._add(f"{kinds} has no {name}")
            return members[0] if members else UNKNOWN
        if value is UNKNOWN or isinstance(value, Bound):
            return UNKNOWN
        if not hasattr(value, name):
            self._add(f"{getattr(value, '__name__', value)} has no {name}")
            return UNKNOWN
        return getattr(value, name)

    def _call(self, node: ast.Call) -> object:
        function = self._value(node.func)
        for argument in node.args:
            self._value(argument)
        for keyword in node.keywords:
            self._value(keyword.value)
        if function is UNKNOWN:
            if (
                isinstance(node.func, ast.Name)
                and node.func.id not in self._placeholders
                and node.func.id not in self._scope
            ):
                self._add(f"there is no {node.func.id}")
            return UNKNOWN
        bound = function if isinstance(function, Bound) else _callable(function)
        if bound.signature is not None:
            self._bind(bound.name, bound.signature, node)
        return bound.result

    def _bind(self, name: str, signature: inspect.Signature, node: ast.Call) -> None:
        """``...`` as an argument stands for what the example leaves out."""
        left_out = any(_is_ellipsis(argument) for argument in node.args)
        values = [argument for argument in node.args if not _is_ellipsis(argument)]
        if any(isinstance(value, ast.Starred) for value in values):
            return
        keywords = {keyword.arg: None for keyword in node.keywords if keyword.arg is not None}
        left_out = left_out or len(keywords) < len(node.keywords)
        bind = signature.bind_partial if left_out else signature.bind
        try:
            bind(*values, **keywords)
        except TypeError as error:
            self._add(f"{name}{signature}: {error}")

    def _add(self, fault: str) -> None:
        self.faults.append(fault)


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _is_ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] in {package.__name__ for package in PACKAGES}


def _callable(function: object) -> Bound:
    """What a call of a function or class takes, and what it gives."""
    name = getattr(function, "__qualname__", str(function))
    if not callable(function):
        return Bound(name, None, UNKNOWN)
    if isinstance(function, type):
        signature = _signature(function) if _is_ours(function) else None
        return Bound(name, signature, Instance((function,)) if _is_ours(function) else UNKNOWN)
    receiver = getattr(function, "__self__", None)
    owner = receiver if isinstance(receiver, type) else None
    return Bound(name, _signature(function), _result(function, owner))


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a builtin
        return None
    shown = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return inspect.Signature(shown)


def _result(function: Any, owner: type | None) -> object:
    """What a function returns, as far as its annotation names classes of ours."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    annotation = getattr(function, "__annotations__", {}).get("return")
    module = inspect.getmodule(function)
    return _annotated(annotation, module, owner)


def _annotated(annotation: object, module: ModuleType | None, owner: type | None) -> object:
    if isinstance(annotation, type):
        return Instance((annotation,)) if _is_ours(annotation) else UNKNOWN
    if not isinstance(annotation, str):
        return UNKNOWN
    text = annotation.strip("\"'")
    if owner is not None and text in {"Self", owner.__name__}:
        return Instance((owner,))
    names = [part.strip() for part in text.split("|")]
    kinds = []
    for name in names:
        kind = getattr(module, name, None)
        if kind is None and len(same := public_names().get(name, [])) == 1:
            kind = same[0]
        if name != "None":
            kinds.append(kind)
    if kinds and all(isinstance(kind, type) and _is_ours(kind) for kind in kinds):
        return Instance(tuple(kind for kind in kinds if isinstance(kind, type)))
    return UNKNOWN


def _members(kind: type, name: str) -> list[object]:
    """An attribute of the objects of a class: a list of one, or empty where they have none."""
    member = inspect.getattr_static(kind, name, None)
    if isinstance(member, property):
        return [_result(member.fget, kind)]
    if isinstance(member, classmethod | staticmethod):
        return [getattr(kind, name)]
    if inspect.isfunction(member):
        signature = _signature(member)
        if signature is None:
            return [UNKNOWN]
        rest = list(signature.parameters.values())[1:]
        shown = inspect.Signature(rest)
        return [Bound(f"{kind.__name__}.{name}", shown, _result(member, kind))]
    for base in kind.__mro__:
        annotations = inspect.get_annotations(base)
        if name in annotations:
            return [_annotated(annotations[name], inspect.getmodule(base), kind)]
        if _is_ours(base) and name in _assigned(base):
            return [UNKNOWN]
        if not _is_ours(base) and base is not object and hasattr(base, name):
            return [UNKNOWN]
    return [UNKNOWN] if member is not None else []


@cache
def _assigned(kind: type) -> set[str]:
    """Attributes that the methods of a class give its objects."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
