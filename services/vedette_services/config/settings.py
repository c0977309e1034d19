"""``KEY=VALUE``: how one key of the configuration is set from a command line or a container."""

from __future__ import annotations

import datetime
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from vedette_rl.settings.key_suggestions import KnownKeys
from vedette_rl.settings.part import PYTHON_NONE, explain, quoted_list
from vedette_services.errors import ManySettingsError, SettingError, UsageError

Table = dict[str, Any]
"""A table of TOML: nested tables of numbers, texts, booleans and lists."""

ENVIRONMENT = "VEDETTE_SET"
"""The variable that holds settings for containers: ``learner.sync_interval=10 seed=3``."""

NONE = "none"
"""Python's None in a file and a setting; TOML has no word for it."""

_WORDS: Mapping[str, object] = {
    "True": True,
    "False": False,
    **dict.fromkeys(PYTHON_NONE, NONE),
}
_BARE_POINT = re.compile(r"[+-]?(\d+\.|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
"""A number without a digit on one side of its point."""
_OPENING = ("[", "{", "(", '"', "'")
"""The first letters of values that are no plain texts, in TOML and in Python."""
_GIVEN_ON = frozenset({"kwargs", "reset_options"})
"""Tables whose values are given to code of the user as they are, so that `NONE` is a text there."""


def settings_table(settings: Iterable[str], option: str = "--set") -> Table:
    """One nested table of many settings; a later one of the same key wins.

    Args:
        settings: ``KEY=VALUE`` each.
        option: what they were given by, for errors.

    Raises:
        UsageError: a text is no ``KEY=VALUE``.
        SettingError: a key goes through a value that is no table, or code of the user would be
            given a text where None, a list, a table or quotes were written.
    """
    table: Table = {}
    for text in settings:
        key, equals, value = text.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise UsageError(f"{option} {text}: write KEY=VALUE, such as learner.sync_interval=100")
        parsed = parse_value(value.strip())
        if _GIVEN_ON.intersection(path[:-1]):
            _refuse_unmeant_text(key.strip(), value.strip(), parsed)
        set_value(table, path, parsed)
    return table


def _refuse_unmeant_text(key: str, written: str, parsed: object) -> None:
    """Refuse a value for code of the user that would be a text, and was not meant as one: no key's
    type refuses it later.

    Raises:
        SettingError: it is Python's None, or begins as a list, a table or a quoted text does.
    """
    if written in PYTHON_NONE:
        why = f"{written} is no value that TOML has, and would be given as a text"
        raise SettingError(key, why, f"leave it out, or write '\"{written}\"'")
    if parsed != written or not written.startswith(_OPENING):
        return
    why = f"{written} is no TOML, and would be given as a text"
    if re.fullmatch(r"\[[^][{}()]*\]", written):
        entries = [entry.strip() for entry in written.strip("[]").split(",")]
        if none := [entry for entry in entries if entry in PYTHON_NONE]:
            fix = f"TOML has no {none[0]}: leave it out, or write it as a text, '\"{none[0]}\"'"
            raise SettingError(key, why, fix)
        if fix := quoted_list(key, written):
            raise SettingError(key, why, fix)
    forms = "'[1, \"a\"]' is a list, '{a = 1}' a table"
    quotes = "a text has quotes within quotes: '\"a\"'"
    raise SettingError(key, why, f"in a shell, {forms}, and {quotes}")


def environment_settings(environment: Mapping[str, str]) -> list[str]:
    """The settings in the environment's variable.

    Raises:
        UsageError: its quotes do not match.
    """
    try:
        return shlex.split(environment.get(ENVIRONMENT, ""))
    except ValueError as e:
        raise UsageError(f"{ENVIRONMENT}: {str(e).lower()}") from e


def environment_table(environment: Mapping[str, str]) -> Table:
    """The settings in the environment's variable as `settings_table` makes one; its errors name the
    variable."""
    try:
        return settings_table(environment_settings(environment), ENVIRONMENT)
    except SettingError as error:
        raise error.within(ENVIRONMENT) from error


def parse_value(text: str) -> Any:  # any value that TOML knows
    """A value as TOML writes it, or a number as other languages do, ``.001`` or ``1.e-3``; or else
    the text itself, so that texts need no quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _BARE_POINT.fullmatch(text):
        return float(text)
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    value = parsed["value"]
    if len(parsed) > 1 or isinstance(value, datetime.date | datetime.time):
        return text
    return value


def set_value(table: Table, path: list[str], value: object) -> None:
    """Set the value at `path`, making the tables on the way.

    Raises:
        SettingError: something on the way is no table.
    """
    here = table
    for depth, name in enumerate(path[:-1]):
        here = here.setdefault(name, {})
        if not isinstance(here, dict):
            raise SettingError(".".join(path), f"{'.'.join(path[: depth + 1])} is no table")
    here[path[-1]] = value


def merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """`above` laid over `below`, table by table; neither is changed."""
    table: Table = dict(below)
    for name, value in above.items():
        under = table.get(name)
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            table[name] = merge_tables(under, value)
        else:
            table[name] = value
    return table


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings.

    Args:
        source: the file or variable, for errors; "" for the command line.
        table: its settings.
    """

    source: str
    table: Table


def add_sources(
    error: SettingError | ManySettingsError, layers: Sequence[Layer]
) -> list[SettingError]:
    """The errors, each with the layer that its wrong value comes from."""
    with_source = []
    for one in error.errors:
        depth, layer = max(
            ((_depth(layer.table, one.key), number) for number, layer in enumerate(layers)),
            default=(0, 0),
        )
        source = layers[layer].source if depth else ""
        with_source.append(one.within(source) if source and not one.source else one)
    return with_source


def _depth(table: Table, key: str) -> int:
    """The number of steps along a key's path that a table has."""
    here: Any = table  # whatever stands there
    for depth, name in enumerate(key.split(".")):
        if isinstance(here, list) and name.isdecimal() and int(name) < len(here):
            here = here[int(name)]
        elif isinstance(here, dict) and name in here:
            here = here[name]
        else:
            return depth
    return key.count(".") + 1


def explain_errors(
    error: ValidationError, part: type[BaseModel], prefix: str, known: KnownKeys
) -> list[SettingError]:
    """Pydantic's complaints about `part` as our own errors; the arguments are those of
    `vedette_rl.settings.part.explain`."""
    return [SettingError(*wrong) for wrong in explain(error, part, prefix, known)]


def dotted_items(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested table with their keys as dotted names; a table within it that
    is empty is a value."""
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from dotted_items(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
