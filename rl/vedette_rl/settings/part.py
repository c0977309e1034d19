"""The base of the configuration's parts, and pydantic's errors in lines that name the key and the
fix."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic_core import ErrorDetails

from vedette_rl.errors import WrongSetting, WrongSettingsError
from vedette_rl.settings.key_suggestions import KnownKeys, as_argument, unknown_key

_SENTENCES = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "list_type": "must be a list in brackets",
    "tuple_type": "must be a list in brackets",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "finite_number": "must be finite",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must be {pattern}",
    "none_required": "must be 'none'",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}
COUNT_LIMIT = 2**63
"""Whole numbers are below: those of files, arrays and messages have 64 bits."""
_LIMITS = ("greater_than_equal", "greater_than", "less_than_equal", "less_than")


class SettingsPart(BaseModel):
    """A part of the configuration. One made in Python names what is wrong in it as a file would.

    ::

        class MyConfig(SettingsPart):
            place = "mine"
            synonyms = {"size": "capacity max_size"}
            size: int = 3
            #: of what
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ser_json_inf_nan="constants",  # pydantic writes null for them, which is read as None
    )

    place: ClassVar[str] = ""
    """its key in the configuration file."""
    pattern_words: ClassVar[Mapping[str, str]] = {}
    """the values that a field's pattern allows, in words."""
    synonyms: ClassVar[Mapping[str, str]] = {}
    """by key of this part, its names in other libraries, apart by spaces: in Stable-Baselines3,
    CleanRL, Tianshou, RLlib, Reverb, Dopamine, border and Ape-X. A subclass adds to those of its
    bases; a key that the class does not have is left out."""

    whole: ClassVar[Callable[[], KnownKeys] | None] = None
    """returns the keys of the whole configuration; None until the package that has it is loaded."""

    @classmethod
    def alternatives(cls) -> Mapping[str, type[SettingsPart]]:
        """The classes that can stand in this one's place, by name, where there are several."""
        return {}

    def __init__(self, /, *unnamed: Any, **values: Any) -> None:
        if foreign := self.explain_foreign(unnamed, values):
            raise WrongSettingsError([foreign])
        wrong: list[WrongSetting] = []
        try:
            super().__init__(**values)
        except ValidationError as error:
            part = type(self)
            place = self.place
            known = known_keys(part, place) | _known_beside(place)
            wrong = explain(error, part, place, known, write=part.write_key)
        if wrong:
            prefix = f"{self.place}."
            raise WrongSettingsError(
                one._replace(key=one.key.removeprefix(prefix), fix=one.fix.replace(prefix, ""))
                for one in wrong
            )

    @classmethod
    def write_key(cls, key: str) -> str:
        """A key of the configuration as Python sets it: an argument of this class, or of train."""
        own = key.removeprefix(f"{cls.place}.") if cls.place else key
        if own == key and cls.place:
            return f"vedette.train({as_argument(key)})"
        return as_argument(own) if "." in own else own

    @classmethod
    def explain_foreign(
        cls, unnamed: tuple[Any, ...], values: Mapping[str, Any]
    ) -> WrongSetting | None:
        """Explain arguments as other libraries' classes take them; None: there is none.

        Args:
            unnamed: arguments without a name, which no key has.
            values: by name.
        """
        if not unnamed:
            return None
        keys = ", ".join(cls.model_fields)
        why = f"{', '.join(map(repr, unnamed))} is given without a key"
        return WrongSetting(cls.place or cls.__name__, why, f"its keys are {keys}")

    @field_validator("*")
    @classmethod
    def _counts_in_64_bits(cls, value: Any) -> Any:  # of any field
        for number in value if isinstance(value, tuple) else (value,):
            if type(number) is int and abs(number) >= COUNT_LIMIT:
                raise ValueError(f"must be below 2**63, not {float(number):g}")
        return value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield what differs from the defaults: all keys would be a page."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            default = field.get_default(call_default_factory=True, validated_data={})
            if field.is_required() or value != default:
                yield name, value

    # Pydantic's mark of its own: reading a file does not call it, and explains the whole file.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # of a function


_TABLES = ("dict_type", "model_type", "model_attributes_type")
_LISTS = ("list_type", "tuple_type")


def _known_beside(place: str) -> KnownKeys:
    """The keys of the other parts of the whole configuration, where a part has a place in it."""
    if not place or SettingsPart.whole is None:
        return KnownKeys(())
    whole = SettingsPart.whole()
    keys = tuple(key for key in whole.keys if not key.startswith(f"{place}."))
    return KnownKeys(keys, {word: key for word, key in whole.synonyms.items() if key in keys})


def explain(
    error: ValidationError,
    part: type[BaseModel],
    prefix: str,
    known: KnownKeys,
    write: Callable[[str], str] = str,
) -> list[WrongSetting]:
    """Pydantic's complaints about `part` in our words, a key once.

    Args:
        prefix: the key of the part, "" for the whole.
        known: every key there is, to find the nearest.
        write: writes a key as the user has to.
    """
    complaints_by_key: dict[str, list[ErrorDetails]] = {}
    optional: set[str] = set()
    errors = error.errors(include_url=False)
    wrong_entries_of = {details["loc"][:-1] for details in errors}
    for details in errors:
        if details["type"] == "too_short" and details["loc"] in wrong_entries_of:
            continue  # pydantic counts the right ones
        path, may_be_none = _path(part, details["loc"])
        if details["type"] == "extra_forbidden":
            path = [*map(str, details["loc"])]
            may_be_none = False
        key = ".".join(filter(None, [prefix, *path]))
        complaints_by_key.setdefault(key, []).append(details)
        optional |= {key} if may_be_none else set()
    for key in optional:
        complaints_by_key[key].append({**complaints_by_key[key][0], "type": "none_required"})
    return [
        _explained(key, complaints, part, known, write)
        for key, complaints in complaints_by_key.items()
    ]


def _explained(
    key: str,
    complaints: list[ErrorDetails],
    part: type[BaseModel],
    known: KnownKeys,
    write: Callable[[str], str],
) -> WrongSetting:
    """One value, about which each member of a union complains."""
    kinds = {details["type"] for details in complaints}
    if "extra_forbidden" in kinds:
        return unknown_key(key, known, keys_of_alternatives(part), write)
    if "missing" in kinds:
        return WrongSetting(key, "is missing")
    fix = _fix_of_brackets(key, complaints[0], known)
    words: Mapping[str, str] = getattr(part, "pattern_words", {})
    return WrongSetting(key or "configuration", _sentence(complaints, words), fix)


def _fix_of_brackets(key: str, complaint: ErrorDetails, known: KnownKeys) -> str:
    """What to write where a table or a list is wanted; "" elsewhere."""
    kind, given = complaint["type"], complaint["input"]
    if kind in _TABLES:
        of_tables = (one for one in known.keys if one.startswith(f"{key}.NAME."))
        return f"set {next(of_tables, f'{key}.KEY')}"
    if kind not in _LISTS or not isinstance(given, str):
        return ""
    return quoted_list(key, given) or "in a shell, '[1, \"a\"]' is a list"


def quoted_list(key: str, given: str) -> str:
    """How a shell is given a list of which it has taken the quotes away: `KEY=["a"]` arrives as
    `KEY=[a]`. "" where no list of TOML can be made of it."""
    entries = [text.strip() for text in given.strip("[] ").removesuffix(",").split(",")]
    fixed = f"[{', '.join(map(_entry, entries))}]"
    if "'" in fixed or not all(entries) or any(entry in PYTHON_NONE for entry in entries):
        return ""
    try:
        tomllib.loads(f"value = {fixed}")
    except tomllib.TOMLDecodeError:
        return ""
    return f"in a shell, in quotes: '{key}={fixed}'"


PYTHON_NONE = ("None", "null")
"""None in Python, and in other languages."""
_BOOLEANS = {"True": "true", "False": "false", "true": "true", "false": "false"}


def _entry(text: str) -> str:
    """An entry of a list as TOML writes it; what has quotes stays a text."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    try:
        number = float(text)
    except ValueError:
        return json.dumps(text.strip("\"'"), ensure_ascii=False)
    has_digits = re.search(r"(?<!\d)\.|\.(?!\d)", text) is None  # on both sides of a point
    return text if has_digits else repr(number)


def keys_of_alternatives(part: type[BaseModel]) -> dict[str, KnownKeys]:
    """The keys of each class that can stand in this one's place, by name."""
    if not issubclass(part, SettingsPart):
        return {}
    return {name: known_keys(other, other.place) for name, other in part.alternatives().items()}


def known_keys(part: type[BaseModel], prefix: str = "") -> KnownKeys:
    """Every key below `part`, as `--set` takes them, with the words of other libraries."""
    keys = dict.fromkeys(keys_of(part, prefix))
    synonyms = {word: key for word, key in _synonyms_of(part, prefix) if key in keys}
    return KnownKeys(tuple(keys), synonyms)


def _synonyms_of(part: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    """Words of other libraries, each with our key; those for what has a name of its own with the
    place, ``replay.sources.NAME.path``."""
    for cls in reversed(part.__mro__):
        synonyms: Mapping[str, str] = vars(cls).get("synonyms", {})
        for name, words in synonyms.items():
            yield from ((word, _join(prefix, name)) for word in words.split())
    for name, field in part.model_fields.items():
        inner = _model_in(field.annotation)
        if inner is None:
            continue
        key = _join(prefix, name)
        if not is_named(field.annotation):
            yield from _synonyms_of(inner, key)
            continue
        for word, ours in _synonyms_of(inner, f"{key}.NAME"):  # there only
            yield f"{key}.NAME.{word}", ours


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def keys_of(part: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key below `part`, as `--set` takes them."""
    for name, field in part.model_fields.items():
        key = _join(prefix, name)
        inner = _model_in(field.annotation)
        if inner is None:
            yield key
        else:
            yield from keys_of(inner, f"{key}.NAME" if is_named(field.annotation) else key)


def _sentence(complaints: list[ErrorDetails], words: Mapping[str, str]) -> str:
    first = complaints[0]
    if first["type"] == "value_error":
        return str(first.get("ctx", {}).get("error", first["msg"]))
    message, *others = (_describe_complaint(details, words) for details in complaints)
    for other in others:
        if message.startswith("must be ") and other.startswith("must be "):
            message += f" or {other.removeprefix('must be ')}"
    got = repr(first["input"])
    return f"{message}, not {got if len(got) <= 60 else got[:57] + '...'}"


def _describe_complaint(details: ErrorDetails, words: Mapping[str, str]) -> str:
    """One complaint as a sentence that says what a value must be."""
    context: Mapping[str, Any] = details.get("ctx", {})  # numbers and texts, by the error's type
    if (pattern := str(context.get("pattern", ""))) in words:
        context = {**context, "pattern": words[pattern]}
    kind, value = details["type"], details["input"]
    if kind in _LIMITS and isinstance(value, float) and math.isnan(value):
        kind = "finite_number"  # it is on no side of any limit
    template = _SENTENCES.get(kind)
    numbers = {k: f"{v:g}" if isinstance(v, float) else v for k, v in context.items()}
    return template.format(**numbers) if template else details["msg"]


def _path(part: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[str], bool]:
    """Return the places of `loc` that are keys, and whether the last key may be none.

    Pydantic adds a union's members, which the user did not write.
    """
    path: list[str] = []
    here: type[BaseModel] | None = part
    named = may_be_none = False  # named: the next place is a name
    for place in loc:
        if isinstance(place, int):
            path.append(str(place))
            may_be_none = False
        elif named:
            path.append(place)
            named = False
        elif here is not None and place in here.model_fields:
            path.append(place)
            annotation = here.model_fields[place].annotation
            here, named = _model_in(annotation), is_named(annotation)
            may_be_none = type(None) in get_args(annotation)
    return path, may_be_none


def is_named(annotation: Any) -> bool:  # annotations have no common type
    """Return True for tables that the user names."""
    return get_origin(annotation) is dict and _model_in(annotation) is not None


def _model_in(annotation: Any) -> type[BaseModel] | None:  # annotations have no common type
    """The model class that an annotation names, itself or as a member of a union."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
