"""Frozen dataclasses whose numbers are described where they are declared, and their JSON."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from vedette_protocol.foreign_text import printable

P = TypeVar("P", bound="Part")
R = TypeVar("R")

Count = Annotated[int, Field(ge=-(2**64), le=2**64)]
"""An integer that a float can hold, whichever peer sent it."""

_TEXT_MAX_CHARS = 2000  # a wait's reasons, with the errors that they quote
_CORRECTIONS = 3  # of a JSON text with values of wrong types; after the first none is left, mostly


@dataclass(frozen=True, slots=True)
class ChartSpec:
    """A chart of the report, with the numbers that name it.

    Args:
        group: the heading above it.
        curves: tag and label of each curve; those of the status's numbers are added.
        levels: keys of the configuration drawn as horizontal lines, each with a label.
        nonzero: leave out curves that are zero throughout.
        unit: of the values; "" for a count or a return.
        about: a sentence on what is drawn.
        points: a longer curve is averaged to this many; 0: it is not averaged.
    """

    group: str
    title: str
    curves: tuple[tuple[str, str], ...] = ()
    levels: tuple[tuple[tuple[str, str], str], ...] = ()
    nonzero: bool = False
    unit: str = ""
    about: str = ""
    points: int = 0


@dataclass(frozen=True, slots=True)
class Number:
    """One number of the status.

    Args:
        title: the quantity that it counts or measures.
        unit: "" for a count.
        tags: the tags in TensorBoard and the other recorders; a chart draws the first.
        counter: it only grows while a learner lives; other numbers are gauges.
        chart: the chart of the report.
        row: the row of the text status in which it is listed unless it is zero.
        label: its label in the chart and the row; "": its name.
    """

    title: str
    unit: str = ""
    tags: tuple[str, ...] = ()
    counter: bool = False
    chart: ChartSpec | None = None
    row: str = ""
    label: str = ""

    def called(self, name: str) -> str:
        """Return its label, or the words of its name."""
        return self.label or name.replace("_", " ")


def gauge(  # Any: a field of whichever type is annotated
    title: str, unit: str = "", *tags: str, default: float | None = None, **more: Any
) -> Any:
    """Declare a field of the status that holds a number; the arguments are those of `Number`."""
    return field(default=default, metadata={"number": Number(title, unit, tags, **more)})


def counter(title: str, unit: str = "", *tags: str, **more: Any) -> Any:
    """Declare a `gauge` that only grows while a learner lives."""
    return gauge(title, unit, *tags, counter=True, **more)


@dataclass(frozen=True, slots=True)
class Part:
    """The status or a part of it. ``part["name"]`` is ``part.name``, as in its JSON."""

    __pydantic_config__ = ConfigDict(allow_inf_nan=False, ser_json_inf_nan="constants")

    def __getitem__(self, name: str) -> Any:  # whichever field
        return getattr(self, name)

    def as_dict(self) -> dict[str, Any]:
        """Return the object of its JSON."""
        values: dict[str, Any] = _adapter(type(self)).dump_python(self, mode="json", warnings=False)
        return values


Found = tuple[tuple[str, ...], Number, float]
"""The path of a number in the status, its description, and its value."""


def numbers(part: Part, *path: str) -> Iterator[Found]:
    """Yield every known number of a part and of the parts in it, except those of managers."""
    for f in fields(part):
        number = f.metadata.get("number")
        value = getattr(part, f.name)
        if isinstance(value, Part):
            yield from numbers(value, *path, f.name)
        elif number is not None and value is not None:
            yield (*path, f.name), number, value


def declared(kind: type[Part]) -> Iterator[tuple[str, Number]]:
    """Yield name and description of every number that a part and the parts in it may have."""
    for f in fields(kind):
        if isinstance(f.default, Part):
            yield from declared(type(f.default))
        elif "number" in f.metadata:
            yield f.name, f.metadata["number"]


def tagged(part: Part) -> dict[str, float]:
    """Return the known numbers of a part by TensorBoard tag."""
    return {tag: float(value) for _, number, value in numbers(part) for tag in number.tags}


_OF_OPT_STEPS = ("train/", "priority/", "queue/", "sampling/", "replay/share_", "replay/return_")
"""How the tags begin that the training loop and its learner write; all others are the status's."""

_COSTS = frozenset({"average_opt_time", "average_sample_time"})


def is_against_opt_steps(tag: str) -> bool:
    """Return True if a curve is against optimization steps, False if against env steps."""
    return tag in _COSTS or tag.startswith(_OF_OPT_STEPS)


def merged(*parts: P) -> P:
    """Merge one part as several processes know it; a later one overrides an earlier one."""
    known = ((f.name, getattr(part, f.name)) for part in parts for f in fields(part))
    return replace(parts[0], **{name: value for name, value in known if value is not None})


# JSON


_adapters: dict[type[object], TypeAdapter[Any]] = {}  # Any: the key


def _adapter(kind: type[R]) -> TypeAdapter[R]:
    """Return the JSON encoder and decoder of a type; making one takes about 50 ms."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def encode(record: object) -> bytes:
    """Encode a status, or another dataclass of such parts, as JSON."""
    adapter = _adapter(type(record))
    try:
        return adapter.dump_json(record, warnings=False)
    except PydanticSerializationError:  # half a surrogate pair, from a path that is not UTF-8
        return json.dumps(adapter.dump_python(record, mode="json", warnings=False)).encode()


def decode(kind: type[R], text: bytes) -> R | None:
    """Decode JSON of whatever origin, without fields that are unknown or of a wrong type.

    Returns:
        None if it is not a JSON object.
    """
    adapter = _adapter(kind)
    with suppress(ValidationError):
        return adapter.validate_json(text, strict=True)
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for _ in range(_CORRECTIONS):
        try:
            again = json.dumps(decoded, ensure_ascii=False).encode("utf-8", "replace")
            return adapter.validate_json(again, strict=True)
        except ValidationError as error:
            for one in reversed(error.errors(include_url=False, include_context=False)):
                _remove(decoded, one["loc"])
    return None


def printable_json(text: bytes) -> bytes | None:
    """Make each text in a JSON object of whatever origin one printable line.

    Returns:
        None if it is not a JSON object.
    """
    try:
        printed = _printable(json.loads(text))
        return json.dumps(printed).encode() if isinstance(printed, dict) else None
    except (ValueError, RecursionError):
        return None


def _printable(node: Any) -> Any:  # Any: JSON of whatever origin
    if isinstance(node, str):
        short = len(node) <= _TEXT_MAX_CHARS
        return node if short and node.isprintable() else printable(node, _TEXT_MAX_CHARS)
    if isinstance(node, list):
        return [_printable(value) for value in node]
    if isinstance(node, dict):
        return {_printable(name): _printable(value) for name, value in node.items()}
    return node


def _remove(node: Any, place: tuple[int | str, ...]) -> None:  # Any: JSON of whatever origin
    """Remove the value at a path, if the path exists."""
    with suppress(KeyError, IndexError, TypeError):
        for name in place[:-1]:
            node = node[name]
        if place:
            del node[place[-1]]
