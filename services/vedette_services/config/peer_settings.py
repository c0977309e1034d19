"""The settings of a run as they travel to its peers, which may be of another release.

::

    told = settings_for_peers(ActorsConfig(n_buffer=20))            # the learner's side
    actors = read_peer_settings(ActorsConfig, told)                 # an actor host's

What is at its default is left out, so that a new key reaches only those that are to do something
for it. What a host does not know is off its default, and is refused with its name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from vedette_protocol.foreign_text import printable
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.import_by_name import find_import_names, is_import_name
from vedette_rl.settings.for_peers import is_learner_only
from vedette_rl.settings.part import SettingsPart, explain, known_keys
from vedette_services.errors import RunNotUnderstoodError
from vedette_services.host.system import vedette_version

_ALWAYS = {"agent": ("name", "discount", "n_step"), "env": ("reward_scale", "reward_clip")}
"""Settings by their part's place that clients in other languages read: they travel at their default
too, as the wire's page says."""

_VALUE_CHARS = 60

Part = TypeVar("Part", bound=SettingsPart)


def settings_for_peers(part: SettingsPart) -> dict[str, Any]:
    """What actor hosts are told of a part of the configuration: what is off its default.

    What only the learner reads is left out, unless something is custom: that may read anything.
    """
    is_custom = any(find_import_names(part.model_dump(mode="json")))
    return _off_default(part, for_learner=is_custom)


def _off_default(part: SettingsPart, *, for_learner: bool) -> dict[str, Any]:
    """`part` without what is at its default.

    Args:
        for_learner: keep what only the learner reads.
    """
    kind = type(part)
    dumped = part.model_dump(mode="json")
    fitting = part.fitting_defaults(dict(part)) if isinstance(part, AgentConfig) else {}
    always = _ALWAYS.get(part.place, ())
    told: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        value = getattr(part, name)
        if is_learner_only(kind, name) and not for_learner and name not in always:
            continue
        default = fitting.get(name, field.get_default(call_default_factory=True))
        if name in always or field.is_required() or value != default:
            told[name] = _without_defaults(value, dumped[name], for_learner=for_learner)
    return told


def _without_defaults(value: Any, dumped: Any, *, for_learner: bool) -> Any:  # of any field
    """A value as JSON, and the parts in it without what is at its default."""
    match value:
        case SettingsPart():
            return _off_default(value, for_learner=for_learner)
        case tuple() | list():
            pairs = zip(value, dumped, strict=True)
            return [_without_defaults(each, json, for_learner=for_learner) for each, json in pairs]
        case dict():
            return {
                key: _without_defaults(each, dumped[key], for_learner=for_learner)
                for key, each in value.items()
            }
        case _:
            return dumped


def read_peer_settings(
    part: type[Part], told: Mapping[str, Any], *, needed: Collection[str] | None = None
) -> Part:
    """Read a part of the configuration as a learner told it.

    Args:
        needed: keys that this host needs: what it does not know of others is ignored
            (`unneeded_peer_settings` names it); None: all.

    Raises:
        RunNotUnderstoodError: names what is set there and not known here, or impossible.
    """
    try:
        return part.model_validate(dict(told))
    except ValidationError as error:
        wrong = error
    unknown = _unknown(wrong)
    unneeded = {details["loc"][0] for details in unknown if needed is not None} - {*(needed or ())}
    if unneeded:
        rest = {name: value for name, value in told.items() if name not in unneeded}
        return read_peer_settings(part, rest)
    if unknown:
        names = ", ".join(_describe(part, details) for details in unknown)
        why = f"{names}: set there, and not known to vedette {vedette_version() or '?'} here"
        raise RunNotUnderstoodError(why) from wrong
    place = part.place
    first = explain(wrong, part, place, known_keys(part, place))[0]
    raise RunNotUnderstoodError(printable(f"{first.key}: {first.why}", None)) from wrong


def unneeded_peer_settings(
    part: type[SettingsPart], told: Mapping[str, Any], needed: Collection[str]
) -> list[str]:
    """Names and values that `read_peer_settings` ignores."""
    try:
        part.model_validate(dict(told))
    except ValidationError as error:
        return [_describe(part, each) for each in _unknown(error) if each["loc"][0] not in needed]
    return []


def same_for_peers(
    part: type[SettingsPart], told: Mapping[str, Any], other: Mapping[str, Any]
) -> bool:
    """Return whether two announcements say the same of a part, in whatever words.

    Earlier releases told defaults, and what only the learner reads, too.
    """
    if told == other:
        return True
    try:
        ours = part.model_validate(dict(told))
        theirs = part.model_validate(dict(other))
    except ValidationError:
        return False
    return settings_for_peers(ours) == settings_for_peers(theirs)


def built_in_config(told: Mapping[str, Any]) -> type[AgentConfig] | None:
    """The class of an agent's settings; None for an agent that does not come with Vedette."""
    from vedette_rl.agents.registry import BUILT_IN  # it loads every agent's policy

    kind = BUILT_IN.get(str(told.get("name")))
    return None if kind is None else kind.config


def check_agent_settings(told: Mapping[str, Any]) -> None:
    """Check the settings of an agent that comes with Vedette; a custom one is not imported.

    Raises:
        RunNotUnderstoodError: names what is set there and not known here, or impossible.
    """
    config = built_in_config(told)
    name = told.get("name")
    if config is not None:
        read_peer_settings(config, told)
    elif isinstance(name, str) and not is_import_name(name):
        version = vedette_version() or "?"
        raise RunNotUnderstoodError(
            f"agent.name = {printable(repr(name))}: vedette {version} here has no such agent"
        )


def _unknown(error: ValidationError) -> list[ErrorDetails]:
    details = error.errors(include_url=False)
    return [each for each in details if each["type"] == "extra_forbidden"]


def _describe(part: type[SettingsPart], details: ErrorDetails) -> str:
    """A key with its value."""
    key = ".".join(filter(None, [part.place, *map(str, details["loc"])]))
    value = repr(details["input"])
    short = value if len(value) <= _VALUE_CHARS else f"{value[:_VALUE_CHARS]}..."
    return printable(f"{key} = {short}", None)
