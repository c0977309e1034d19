"""What a configuration's classes say of their keys, in the ``Args`` of their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from pydantic import BaseModel

_ARGUMENT = re.compile(r"    (\w+(?:, \w+)*): (.*)")


def key_docs(part: type[BaseModel]) -> dict[str, str]:
    """A sentence for each key of a class; what a class does not say, its base says."""
    docs: dict[str, str] = {}
    for cls in reversed(part.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            docs.update(_arguments(inspect.cleandoc(cls.__doc__ or "")))
    return {name: docs[name] for name in part.model_fields if name in docs}


def summary(part: type[BaseModel]) -> str:
    """What a class says of itself before it comes to its keys."""
    text = inspect.cleandoc(part.__doc__ or "").partition("\n\nArgs:")[0]
    return _plain(text)


def _arguments(doc: str) -> Iterator[tuple[str, str]]:
    section = doc.partition("\nArgs:\n")[2]
    names: list[str] = []
    said: list[str] = []
    for line in [*section.splitlines(), "end"]:
        begins = _ARGUMENT.fullmatch(line)
        if begins or not line.startswith("     "):
            yield from ((name, _plain(" ".join(said))) for name in names)
            names, said = [], []
        if begins:
            names, said = begins[1].split(", "), [begins[2]]
        elif names:
            said.append(line.strip())
        if line and not line.startswith(" "):
            return


def _plain(text: str) -> str:
    """A docstring's words as Markdown has them, in one line."""
    return " ".join(text.replace("``", "`").split())
