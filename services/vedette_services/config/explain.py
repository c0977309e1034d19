"""pydantic's errors, said in one line that names the key and the mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from vedette_services.errors import SettingError

_SENTENCES = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "finite_number": "must be finite",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must look like {pattern}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}


def explain(
    error: ValidationError, part: type[BaseModel], prefix: str, keys: Iterable[str]
) -> SettingError:
    """The first of pydantic's complaints about `part` as our own error.

    Args:
        prefix: the key of the part, "" for the whole.
        keys: every key there is, to find the nearest.
    """
    details = error.errors(include_url=False)
    first = details[0]
    key = ".".join(filter(None, [prefix, *_path(part, first["loc"])]))
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    if first["type"] == "extra_forbidden":
        unknown = ".".join(filter(None, [prefix, *map(str, first["loc"])]))
        return unknown_key(unknown, keys, more)
    if first["type"] == "missing":
        return SettingError(key, "is missing" + more)
    return SettingError(key or "configuration", _sentence(first) + more)


def unknown_key(key: str, keys: Iterable[str], more: str = "") -> SettingError:
    """The error for a key that does not exist, with the nearest that does."""
    near = nearest(key, keys)
    why = "unknown key" + more
    return SettingError(key, why, f"did you mean {near}?" if near else "")


def nearest(key: str, keys: Iterable[str]) -> str:
    """The key most like `key`, also one of the same last name in another part; "" for none."""
    known = list(keys)
    last = key.rpartition(".")[2]
    for candidate in known:
        if candidate.rpartition(".")[2] == last:
            return candidate
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if close:
        return close[0]
    by_last = {candidate.rpartition(".")[2]: candidate for candidate in known}
    close = difflib.get_close_matches(last, list(by_last), n=1, cutoff=0.75)
    return by_last[close[0]] if close else ""


def keys_of(part: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key below `part`, as `--set` takes them."""
    for name, field in part.model_fields.items():
        key = f"{prefix}.{name}" if prefix else name
        inner = _model_in(field.annotation)
        if inner is None:
            yield key
        else:
            yield from keys_of(inner, key)


def _sentence(details: ErrorDetails) -> str:
    context: Mapping[str, Any] = details.get("ctx", {})  # numbers and texts, by the error's type
    if details["type"] == "value_error":
        return str(context.get("error", details["msg"]))
    template = _SENTENCES.get(details["type"])
    numbers = {k: f"{v:g}" if isinstance(v, float) else v for k, v in context.items()}
    said = template.format(**numbers) if template else details["msg"]
    got = repr(details["input"])
    return f"{said}, not {got if len(got) <= 60 else got[:57] + '...'}"


def _path(part: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The places of `loc` that are keys: pydantic adds a union's members, nobody wrote those."""
    path: list[str] = []
    here: type[BaseModel] | None = part
    for place in loc:
        if isinstance(place, int):
            path.append(str(place))
        elif here is not None and place in here.model_fields:
            path.append(place)
            here = _model_in(here.model_fields[place].annotation)
    return path


def _model_in(annotation: Any) -> type[BaseModel] | None:  # annotations have no common type
    """The model class that an annotation names, itself or as a member of a union."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
