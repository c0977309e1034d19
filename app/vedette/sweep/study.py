"""A study's file: how many trials, what they share, and the space of settings to search."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vedette_rl.settings.part import known_keys
from vedette_services.config import RunConfig, load_config
from vedette_services.config.loading import read_given, read_toml
from vedette_services.config.settings import (
    ENVIRONMENT,
    Layer,
    Table,
    add_sources,
    environment_table,
    explain_errors,
    merge_tables,
    set_value,
    settings_table,
)
from vedette_services.errors import ManySettingsError, SettingError, UsageError, raise_errors

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Part = TypeVar("Part", bound=BaseModel)


class StudyConfig(BaseModel):
    """The file of a study."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    trials: int = Field(20, ge=1, le=10_000)
    """how many, of all processes together."""
    seeds: int = Field(1, ge=1, le=100)
    """runs of a trial, one after another; its value is their mean."""
    objective: Literal["last", "best", "area"] = "last"
    """the evaluation that a trial is judged by; ``area``: their mean over `stop.max_env_steps`."""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """how trials that fall behind are found."""
    sampler: Literal["tpe", "random"] = "tpe"
    """how settings are proposed."""
    config: str = ""
    """a TOML file of the configuration, beside this one."""
    settings: Table = Field(default_factory=dict)
    """the configuration of all trials, over that of the file."""
    space: Table
    """``KEY = {low, high, log, step}`` or ``KEY = {choices}``."""


class _Range(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None


class _Choices(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    choices: tuple[Any, ...] = Field(min_length=1)  # of TOML's types


class Study:
    """A study's file: the configuration of its trials, and the space of their settings.

    Args:
        path: the TOML file.
        settings: ``KEY=VALUE`` texts over those of the file.
        allow_import: packages that a run in the study's directory, or one whose settings it begins
            with, may import, whoever has begun the run.
        environment: the variables in which `VEDETTE_SET` is looked up, once for all trials; None:
            this process's.

    Raises:
        SettingError: it cannot be read, or a key is wrong.
        ManySettingsError: several are.
        UsageError: Optuna is not installed.
    """

    def __init__(
        self,
        path: Path,
        settings: Sequence[str] = (),
        *,
        allow_import: Collection[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if find_spec("optuna") is None:
            fix = "pip install 'vedette[optuna]'"
            raise UsageError(f"vedette sweep: optuna is not installed; {fix}")
        self.path = path
        table = read_toml(path, pipe=True)
        try:
            self.config = _validated(StudyConfig, table)
            self._dimensions = dict(_flatten(self.config.space))
            self.space = {key: _distribution(key, of) for key, of in self._dimensions.items()}
            if not self.space:
                raise SettingError("space", "has no key", "name what to search, with low and high")
        except (SettingError, ManySettingsError) as error:
            raise_errors([one.within(str(path)) for one in error.errors])
        self._allow_import = allow_import
        base: Table = {}
        if self.config.config:
            base = read_given(path.parent / self.config.config, allow_import)
        file = merge_tables(base, self.config.settings)
        variables = os.environ if environment is None else environment
        variable = environment_table(variables)
        typed = settings_table(settings)
        self._layers = [Layer("", file), Layer(ENVIRONMENT, variable), Layer("", typed)]
        self._base = merge_tables(merge_tables(file, variable), typed)

    def table(self, params: Mapping[str, Any]) -> Table:
        """Return the settings of a trial, as a configuration file has them."""
        return merge_tables(self._base, self._space_table(params))

    def _space_table(self, params: Mapping[str, Any]) -> Table:
        """Return the parameters of a trial as a table."""
        table: Table = {}
        for key, value in self._decoded(params).items():
            own: Table = {}
            set_value(own, key.split("."), value)
            table = merge_tables(table, own)
        return table

    def configure(
        self, params: Mapping[str, Any], seed: int | None = None, saved: Path | None = None
    ) -> RunConfig:
        """Return the configuration of a trial.

        Args:
            params: the parameters of Optuna's trial.
            seed: the seed of the run; None: the configured one.
            saved: the configuration of a run that is resumed.

        Raises:
            ConfigError: it is wrong.
        """
        table = self.table(params) | ({} if seed is None else {"seed": seed})
        try:
            return load_config(
                table=table,
                environment={},  # it is in the table
                saved=saved,
                allow_import=self._allow_import,
                fit="here",
            ).config
        except (SettingError, ManySettingsError) as error:
            errors = add_sources(error, [*self._layers, Layer("", self._space_table(params))])
            raise_errors([e if e.source else e.within(str(self.path)) for e in errors])
            raise

    def ends(self) -> Iterator[dict[str, Any]]:
        """Yield parameters such that every choice and both ends of every range are among them."""
        first = {key: _ends(space)[0] for key, space in self.space.items()}
        yield first
        for key, space in self.space.items():
            for value in _ends(space)[1:]:
                yield {**first, key: value}

    def check_ranges(self) -> None:
        """Check that no range of fractions is for a key of whole numbers: the ends of one may be
        whole, and a trial between them would fail.

        Raises:
            SettingError: names the key and the fix.
        """
        first = next(self.ends())
        for key, space in self.space.items():
            value = _fraction(space)
            if value is None:
                continue
            try:
                self.configure({**first, key: value})
            except (SettingError, ManySettingsError) as error:
                for one in error.errors:
                    if one.key == key:
                        why = f"it has {value:g} between its ends, and {key} {one.why}"
                        fix = "write low, high and step as whole numbers, without a point"
                        wrong = SettingError(f"space.{key}", why, fix, source=str(self.path))
                        raise wrong from error

    def described(self) -> str:
        """Return all that makes trials comparable, as JSON."""
        own = self.config.model_dump(mode="json", exclude={"trials", "config", "settings"})
        return json.dumps({**own, "settings": self._base}, sort_keys=True, default=str)

    def _decoded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the labels of choices by the values that they stand for."""
        values = dict(params)
        for key in params:
            if "choices" in self._dimensions[key]:
                choices = self._dimensions[key]["choices"]
                values[key] = {_label(choice): choice for choice in choices}[params[key]]
        return values


def check_budget(config: RunConfig, objective: str) -> None:
    """Refuse a configuration whose trials would not end, or could not be compared.

    Raises:
        SettingError: names the key and the fix.
    """
    stop = config.stop
    if not (stop.max_env_steps or stop.max_opts or stop.max_seconds):
        fix = "set stop.max_env_steps"
        raise SettingError("stop", "a trial that never reaches its target would never end", fix)
    if config.learner.eval_interval == 0:
        fix = "set it to optimization steps"
        raise SettingError("learner.eval_interval", "is 0: trials are judged by evaluations", fix)
    if objective == "area" and not stop.max_env_steps:
        raise SettingError("objective", "area is over stop.max_env_steps", "set that")


def _validated(kind: type[Part], table: Table, place: str = "") -> Part:
    """Return a table as its class, strictly: no text is a number."""
    try:
        return kind.model_validate_json(json.dumps(table, default=str), strict=True)
    except ValidationError as error:
        raise_errors(explain_errors(error, kind, place, known_keys(kind, place)))
        raise


def _flatten(space: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Table]]:
    """Yield every dotted key of a space with its range or choices."""
    for name, below in space.items():
        if not isinstance(below, dict):
            fix = "write {low = 1, high = 10} or {choices = [1, 10]}"
            raise SettingError(f"space.{prefix}{name}", f"must be a table, not {below!r}", fix)
        if {"low", "high", "choices"} & below.keys():
            yield f"{prefix}{name}", below
        else:
            yield from _flatten(below, f"{prefix}{name}.")


def _distribution(key: str, table: Table) -> BaseDistribution:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    kind: type[_Choices | _Range] = _Choices if "choices" in table else _Range
    dimension = _validated(kind, table, f"space.{key}")
    if isinstance(dimension, _Choices):
        labels = [_label(choice) for choice in dimension.choices]
        for place, label in enumerate(labels):
            if label in labels[:place]:  # Optuna takes 1, 1.0 and true for one
                other = dimension.choices[labels.index(label)]
                why = f"{other!r} and {dimension.choices[place]!r} are the same choice"
                raise SettingError(f"space.{key}", why, "leave one out")
        return CategoricalDistribution(labels)
    if not (math.isfinite(dimension.low) and math.isfinite(dimension.high)):
        why = f"{dimension.low} to {dimension.high} has no end"
        raise SettingError(f"space.{key}", why, "give finite numbers")
    numbers = (dimension.low, dimension.high, 1 if dimension.step is None else dimension.step)
    try:
        if all(isinstance(number, int) for number in numbers):
            low, high, step = map(int, numbers)
            return IntDistribution(low, high, dimension.log, step)
        return FloatDistribution(dimension.low, dimension.high, dimension.log, dimension.step)
    except ValueError as error:
        raise SettingError(f"space.{key}", " ".join(str(error).split()).rstrip(".")) from error


def _ends(space: BaseDistribution) -> list[Any]:
    """Return the choices, or the ends of a range."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(space, CategoricalDistribution):
        return list(space.choices)
    assert isinstance(space, FloatDistribution | IntDistribution)
    return [space.low, space.high]


def _fraction(space: BaseDistribution) -> float | None:
    """Return a value of a range that is no whole number; None if it has none."""
    from optuna.distributions import FloatDistribution

    if not isinstance(space, FloatDistribution) or space.single():
        return None
    if space.step is not None:
        value = space.low + space.step
    else:
        middle = (space.low + space.high) / 2
        value = middle if middle % 1 else middle + min(0.5, (space.high - space.low) / 4)
    return value if value % 1 else None


def _label(choice: object) -> bool | int | float | str:
    """Return a choice as Optuna stores it: lists and tables as their JSON."""
    return choice if isinstance(choice, bool | int | float | str) else json.dumps(choice)
