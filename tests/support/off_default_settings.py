"""Agents' and environments' settings, each key off its default in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import ValidationError

from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.settings.part import SettingsPart

LATER_AGENTS = ("appo",)
"""Agents that the release before does not know: it refuses them by name."""

Part = TypeVar("Part", bound=SettingsPart)


def each_agent() -> Iterator[AgentConfig]:
    """Every agent at its defaults, and with each of its settings off it."""
    for name, kind in BUILT_IN.items():
        usual = kind.config(name=name)
        yield usual
        yield from each_off_default(usual)


def each_off_default(usual: Part) -> Iterator[Part]:
    """`usual` with one key after the other off its default; a part within with each of its own."""
    kind = type(usual)
    given = {name: getattr(usual, name) for name in usual.model_fields_set}
    for name, field in kind.model_fields.items():
        default = getattr(usual, name)
        others: list[Any] = (
            list(each_off_default(default))
            if isinstance(default, SettingsPart)
            else list(_others(default, field.annotation))
        )
        made = [one for one in (_made(kind, {**given, name: other}) for other in others) if one]
        yield from (one for one in made if getattr(one, name) != default)


def _made(kind: type[Part], given: dict[str, Any]) -> Part | None:
    try:
        return kind.model_validate(given)
    except ValidationError:
        return None  # a value that the field does not take


def _others(default: Any, annotation: Any) -> Iterator[Any]:
    """Values that are not the default, some of which the field may take."""
    literals = get_args(annotation) if get_origin(annotation) is Literal else ()
    yield from (value for value in literals if value != default)
    match default:
        case bool():
            yield not default
        case int():
            yield from (default + 1, max(default - 1, 0))
        case float():
            yield from (default / 2, default * 1.5, 0.25)
        case tuple() | None:
            yield from ((64, 64), 7)
        case str():
            yield from (0.5, "linear", "small", "cnn", "ladder", "constant", "her", "threads")
        case dict():
            yield {"size": 3}
