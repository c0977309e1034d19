"""Settings that came after files of their part were written, and read, by an earlier release.

At its default such a setting is not written, so that earlier releases read what needs nothing new.
The default then means what they do without the setting, and stays what it is: a file that does not
name it is of either.

::

    class MyConfig(AgentConfig):
        image_max: Annotated[int, LATER_KEY] = 255
"""

from __future__ import annotations

from typing import Any, Final

from vedette_rl.settings.part import SettingsPart


class _LaterKey:
    """A mark for a field's `Annotated`."""


LATER_KEY: Final = _LaterKey()


def dump_for_files(part: SettingsPart) -> dict[str, Any]:
    """Return a part in JSON's types, without the marked settings that are at their defaults."""
    return _without_later(part, part.model_dump(mode="json"))


def _without_later(part: SettingsPart, dumped: dict[str, Any]) -> dict[str, Any]:
    kind = type(part)
    written: dict[str, Any] = {}
    for name, json in dumped.items():
        value = getattr(part, name)
        if _is_later(kind, name):
            default = kind.model_fields[name].get_default(call_default_factory=True)
            if value == default:
                continue
        written[name] = _without_later(value, json) if isinstance(value, SettingsPart) else json
    return written


def _is_later(kind: type[SettingsPart], name: str) -> bool:
    """True for a marked field, also for one that a subclass declares again."""
    fields = (getattr(cls, "model_fields", {}).get(name) for cls in kind.__mro__)
    return any(LATER_KEY in field.metadata for field in fields if field)
