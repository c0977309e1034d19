"""Settings in which two configurations differ, and what stored data depends on them.

What may not change when a run resumes is marked where it is declared, by
`vedette_rl.settings.stored`; `vedette_services.run.resume` refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from vedette_rl.settings.stored import StoredIn, marks_of
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import SettingError


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A key that differs from the last start's.

    Args:
        before, now: its values as `--set` takes them.
        stored_in: where the previous value is part of what is stored: ``samples``, ``weights``,
            ``best``.
    """

    key: str
    before: str
    now: str
    stored_in: frozenset[str]

    @property
    def values(self) -> str:
        """Both values."""
        return f"{self.before} -> {self.now}"

    def __str__(self) -> str:
        return f"{self.key}: {self.values}"

    def refusal(self, out: Path, stored: set[str]) -> SettingError:
        """Return the error for a resume that would mix both; `stored` is what there is."""
        in_weights = "weights" in self.stored_in & stored
        made_with = "" if in_weights else "samples made with "
        erase = "erase it with --fresh --force"
        fix = erase if in_weights else "begin an empty replay with --new-replay"
        return SettingError(
            self.key,
            f"the run in {out} has {made_with}{self.before}, not {self.now}",
            f"set {self.key}={self.before}, choose another --out, or {fix}",
        )


def changed_settings(before: RunConfig, now: RunConfig) -> list[ChangedSetting]:
    """List the keys whose values differ, in the order of the configuration."""
    old, new = dict(_settings(before)), dict(_settings(now))
    return [
        ChangedSetting(
            key,
            _text(old[key][0]) if key in old else "unset",
            _text(new[key][0]) if key in new else "unset",
            _stored_in(_changed_marks(key, old, new), before, now),
        )
        for key in dict.fromkeys([*new, *old])
        if key not in old or key not in new or old[key][0] != new[key][0]
    ]


_Settings = Mapping[str, tuple[Any, frozenset[StoredIn]]]  # any JSON


def _changed_marks(key: str, old: _Settings, new: _Settings) -> frozenset[StoredIn]:
    """Return the marks of a setting that count for this change of it."""
    marks = (old if key in old else new)[key][1]
    is_set = {bool(settings[key][0]) for settings in (old, new) if key in settings}
    return frozenset(mark for mark in marks if len(is_set) > 1 or not mark.if_any)


def _stored_in(marks: frozenset[StoredIn], *configs: RunConfig) -> frozenset[str]:
    """Return where a marked value is stored: single transitions have no sums."""
    sums = any(c.row_steps > 1 or c.actors.step_processor != "n_step" for c in configs)
    return frozenset(mark.what for mark in marks if sums or not mark.sums_only)


def _settings(
    part: BaseModel, prefix: str = ""
) -> Iterator[tuple[str, tuple[Any, frozenset[StoredIn]]]]:
    """Yield each key with its value, as JSON has it, and its marks."""
    values = part.model_dump(mode="json")
    for name in type(part).model_fields:
        inner = getattr(part, name)
        if isinstance(inner, BaseModel):
            yield from _settings(inner, f"{prefix}{name}.")
        elif isinstance(inner, dict) and any(isinstance(i, BaseModel) for i in inner.values()):
            for key, table in inner.items():
                yield from _settings(table, f"{prefix}{name}.{key}.")
        else:
            yield f"{prefix}{name}", (values[name], marks_of(type(part), name))


def _text(value: Any) -> str:  # any JSON
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
