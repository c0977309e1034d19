"""Tells which interfaces an object has, the same on every Python.

``isinstance(value, Interface)`` does not: from Python 3.12 on it leaves out what `value` has by
`__getattr__`. An object that wraps a policy and passes everything on would then be no policy, and
the columns of the policy inside would not be asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from typing_extensions import TypeIs, get_protocol_members

P = TypeVar("P")


def implements(value: object, protocol: Callable[..., P]) -> TypeIs[P]:
    """Return True if `value` has all members of a protocol, its own or by `__getattr__`.

    Methods have to be callable: an object that answers every name with None has none. Signatures
    are not compared.

    Args:
        protocol: a class; mypy takes no protocol for a ``type[P]`` (its `type-abstract`).
    """
    return not missing_members(value, protocol)


def missing_members(value: object, protocol: Any) -> list[str]:
    """Return the names of a protocol's members that `value` lacks, methods that are not callable
    among them.

    Args:
        protocol: a class. Any: see `implements`.
    """
    members = sorted(get_protocol_members(protocol))
    return [name for name in members if not _has(value, name, getattr(protocol, name, None))]


def _has(value: object, name: str, declared: Any) -> bool:
    is_special = name.startswith("__") and name.endswith("__")
    owner = type(value) if is_special else value  # len(value) asks the class, never __getattr__
    if callable(declared):
        return callable(getattr(owner, name, None))
    return hasattr(owner, name)
