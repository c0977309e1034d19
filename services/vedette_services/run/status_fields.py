"""Frozen records whose numbers are described where they are declared, and their JSON."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

P = TypeVar("P", bound="Part")
R = TypeVar("R")

Count = Annotated[int, Field(ge=-(2**64), le=2**64)]
"""An integer that a float can hold, whoever sent it."""

_CORRECTIONS = 3  # of a JSON text with values of wrong types; after the first none is left, mostly


@dataclass(frozen=True, slots=True)
class ChartSpec:
    """A chart of the report: the numbers that name it, in their order.

    Args:
        group: the heading that it is under.
        title: its own.
        curves: tag and label of each curve; those of the status's numbers are added.
        levels: keys of the configuration that are drawn across, with a label each.
        nonzero: curves that are zero throughout are left out.
        points: a longer curve becomes means of so many stretches; a chart is some 400 units wide,
            more than the default would not be seen.
    """

    group: str
    title: str
    curves: tuple[tuple[str, str], ...] = ()
    levels: tuple[tuple[tuple[str, str], str], ...] = ()
    nonzero: bool = False
    points: int = 160


@dataclass(frozen=True, slots=True)
class Number:
    """One number of the status.

    Args:
        title: what it counts or measures.
        unit: "" where that is a count of what the title says.
        tags: of TensorBoard and the other recorders; a chart draws the first.
        counter: it only grows while a learner lives; other numbers are gauges.
        chart: of the report.
        row: of the text status, where it is listed unless it is zero.
        label: in that chart and that row; "": its name.
    """

    title: str
    unit: str = ""
    tags: tuple[str, ...] = ()
    counter: bool = False
    chart: ChartSpec | None = None
    row: str = ""
    label: str = ""

    def called(self, name: str) -> str:
        """Its label, or the words of its name."""
        return self.label or name.replace("_", " ")


def gauge(  # Any: a field of whichever type is annotated
    title: str, unit: str = "", *tags: str, default: float | None = None, **more: Any
) -> Any:
    """A field of the status that holds a number, described as `Number` says."""
    return field(default=default, metadata={"number": Number(title, unit, tags, **more)})


def counter(title: str, unit: str = "", *tags: str, **more: Any) -> Any:
    """A `gauge` that only grows while a learner lives."""
    return gauge(title, unit, *tags, counter=True, **more)


@dataclass(frozen=True, slots=True)
class Part:
    """The status or a part of it. ``part["name"]`` is ``part.name``, as in its JSON."""

    __pydantic_config__ = ConfigDict(allow_inf_nan=False, ser_json_inf_nan="constants")

    def __getitem__(self, name: str) -> Any:  # whichever field
        return getattr(self, name)

    def as_dict(self) -> dict[str, Any]:
        """What its JSON says."""
        found: dict[str, Any] = _adapter(type(self)).dump_python(self, mode="json", warnings=False)
        return found


Found = tuple[tuple[str, ...], Number, float]
"""The path of a number in the status, what is declared of it, and its value."""


def numbers(part: Part, *path: str) -> Iterator[Found]:
    """Every number of a part that is known, also those of its parts; not those of managers."""
    for f in fields(part):
        number, value = f.metadata.get("number"), getattr(part, f.name)
        if isinstance(value, Part):
            yield from numbers(value, *path, f.name)
        elif number is not None and value is not None:
            yield (*path, f.name), number, value


def declared(kind: type[Part]) -> Iterator[tuple[str, Number]]:
    """Name and description of every number that a part may have, also those of its parts."""
    for f in fields(kind):
        if isinstance(f.default, Part):
            yield from declared(type(f.default))
        elif "number" in f.metadata:
            yield f.name, f.metadata["number"]


def tagged(part: Part) -> dict[str, float]:
    """What the recorders write of a part, by tag."""
    return {tag: float(value) for _, number, value in numbers(part) for tag in number.tags}


def merged(*parts: P) -> P:
    """What several processes know of one part; a later one has the last word."""
    known = ((f.name, getattr(part, f.name)) for part in parts for f in fields(part))
    return replace(parts[0], **{name: value for name, value in known if value is not None})


# JSON


_adapters: dict[type[object], TypeAdapter[Any]] = {}  # Any: the key


def _adapter(kind: type[R]) -> TypeAdapter[R]:
    """What encodes and decodes a record; it takes some 50 ms to make."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def encode(record: object) -> bytes:
    """A status, or another frozen record of such parts, as JSON."""
    adapter = _adapter(type(record))
    try:
        return adapter.dump_json(record, warnings=False)
    except PydanticSerializationError:  # half a character, of a path that is not UTF-8
        return json.dumps(adapter.dump_python(record, mode="json", warnings=False)).encode()


def decode(kind: type[R], text: bytes) -> R | None:
    """A record from JSON of whatever origin, without what is unknown or of a wrong type.

    Returns:
        None where that is no JSON object.
    """
    adapter = _adapter(kind)
    with suppress(ValidationError):
        return adapter.validate_json(text, strict=True)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for _ in range(_CORRECTIONS):
        try:
            again = json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")
            return adapter.validate_json(again, strict=True)
        except ValidationError as error:
            for one in reversed(error.errors(include_url=False, include_context=False)):
                _remove(found, one["loc"])
    return None


def _remove(found: Any, place: tuple[int | str, ...]) -> None:  # Any: JSON of whatever origin
    """Take out what stands at a place; nothing where a part of the way is gone already."""
    with suppress(KeyError, IndexError, TypeError):
        for name in place[:-1]:
            found = found[name]
        if place:
            del found[place[-1]]
