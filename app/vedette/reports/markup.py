"""HTML elements. Every text that is not `Markup` is escaped.

A report shows texts that came over the network: names of managers, errors of environments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

_VOID = frozenset({"meta", "img", "br"})
_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, which HTML forbids, and characters that reverse the text after them."""


class Markup(str):
    """A text that is already HTML."""

    __slots__ = ()


def element(name: str, /, *children: str | None, **attributes: object) -> Markup:
    """Make ``<name attributes>children</name>``.

    Args:
        name: of the element.
        children: `Markup`, or texts, which are escaped; None is left out.
        attributes: ``class_`` for ``class``, ``data_x`` for ``data-x``; None is left out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{to_markup(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join_markup(children)}</{name}>")


def join_markup(children: Iterable[str | None]) -> Markup:
    """Join children, of which None is left out."""
    return Markup("".join(to_markup(child) for child in children if child is not None))


def to_markup(value: object) -> Markup:
    """Escape a value; `Markup` stays as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(_UNSHOWABLE.sub("\ufffd", str(value))))
