"""The same data under another setting: a run's learning as it would have gone on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from vedette_services.config.changes import changed_settings
from vedette_services.config.loading import config_from_table
from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import config_table
from vedette_services.config.settings import merge_tables, settings_table
from vedette_services.errors import ManySettingsError, SettingError, UsageError, raise_errors
from vedette_services.learner.rerun import Watch

_PARTS = ("agent", "learner", "replay")
_GIVEN = frozenset(
    {
        "agent.name",
        "learner.device",
        "learner.ranks",
        "replay.capacity",
        "replay.directory",
        "replay.frame_storage",
        "replay.keep",
        "replay.name",
        "replay.samples_per_insert",
        "replay.sources",
        "replay.sync_interval_s",
    }
)
"""Settings by which rows were made, or came to be drawn: what is executed again has them."""


class Change:
    """Settings that are another one than then.

    Args:
        settings: ``KEY=VALUE`` each; none: only what is recorded changes.
        record_interval: optimization steps from one record to the next, if that is less than then.

    Raises:
        UsageError: a text is no ``KEY=VALUE``.
        SettingError: a key has no part in what a trainer does with the rows that it draws.
    """

    def __init__(self, settings: Iterable[str], record_interval: int) -> None:
        self._record_interval = record_interval
        self._given = tuple(settings)
        with _errors_of_with():
            self._table = settings_table(self._given, "--with")
        for part, keys in self._table.items():
            for key in keys if isinstance(keys, Mapping) else ("",):
                name = f"{part}.{key}".rstrip(".")
                is_elsewhere = part in RunConfig.model_fields and part not in _PARTS
                if is_elsewhere or name in _GIVEN:
                    raise _given(name)

    def __call__(self, config: RunConfig) -> RunConfig:
        """The configuration with the change.

        Raises:
            SettingError: a value is wrong; or the stored rows, or the saved weights, depend on one
                of its settings.
            ManySettingsError: several values are wrong.
            UsageError: it changes nothing.
        """
        with _errors_of_with():
            changed = config_from_table(merge_tables(config_table(config), self._table))
        settings = changed_settings(config, changed)
        for setting in settings:
            if "samples" in setting.stored_in:
                raise _given(setting.key)
            if "weights" in setting.stored_in:
                why = f"the saved states have weights of {setting.before}"
                raise SettingError(f"--with {setting.key}", why, "change what learns them")
        if self._given and not settings:
            given = ", ".join(self._given)
            raise UsageError(f"--with {given}: the run has it so: give another value")
        interval = changed.learner.record_agent_info_interval or self._record_interval
        record = {"record_agent_info_interval": min(interval, self._record_interval)}
        learner = changed.learner.model_copy(update=record)
        return changed.model_copy(update={"learner": learner})


@contextmanager
def _errors_of_with() -> Iterator[None]:
    """Raise the errors of settings with the option that has given them."""
    try:
        yield
    except (SettingError, ManySettingsError) as error:
        raise_errors(
            [SettingError(f"--with {each.key}", each.why, each.fix) for each in error.errors]
        )


def _given(key: str) -> SettingError:
    why = "the rows were made, and came to be drawn, by it"
    return SettingError(f"--with {key}", why, "change what learns from them")


class Curves(Watch):
    """Keeps what an execution records.

    Attributes:
        scalars: by optimization step.
    """

    def __init__(self) -> None:
        self.scalars: dict[int, dict[str, float]] = {}

    def record(self, record: Mapping[str, float], opt_steps: int) -> None:
        own = {name.removeprefix("train/"): value for name, value in record.items()}
        if all(name.startswith("train/") for name in record):
            self.scalars[opt_steps] = own
