"""Where a setting comes from: a file, a variable or the command line, laid over one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vedette_services.config.settings import Table, merged
from vedette_services.errors import ManySettingsError, SettingError


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings.

    Args:
        source: the file or variable, for errors; "" for the command line.
        table: its settings.
    """

    source: str
    table: Table


def laid_over(layers: Iterable[Layer]) -> Table:
    """All layers as one table; later ones win."""
    table: Table = {}
    for layer in layers:
        table = merged(table, layer.table)
    return table


def sourced(error: SettingError | ManySettingsError, layers: Sequence[Layer]) -> list[SettingError]:
    """The errors, each said of the layer that the wrong value comes from."""
    told = []
    for one in each(error):
        depth, layer = max(
            ((_depth(layer.table, one.key), number) for number, layer in enumerate(layers)),
            default=(0, 0),
        )
        source = layers[layer].source if depth else ""
        told.append(one.within(source) if source and not one.source else one)
    return told


def each(error: SettingError | ManySettingsError) -> Sequence[SettingError]:
    """The errors in one that may be several."""
    return (error,) if isinstance(error, SettingError) else error.errors


def _depth(table: Table, key: str) -> int:
    """How far down a key's path a table goes."""
    here: Any = table  # whatever stands there
    for depth, name in enumerate(key.split(".")):
        if isinstance(here, list) and name.isdecimal() and int(name) < len(here):
            here = here[int(name)]
        elif isinstance(here, dict) and name in here:
            here = here[name]
        else:
            return depth
    return key.count(".") + 1
