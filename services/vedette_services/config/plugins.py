"""Short names that installed packages give to their own agents, recorders and the like.

A package declares them as entry points in its ``pyproject.toml``::

    [project.entry-points."vedette.agents"]
    mine = "my_pkg.agents:MyAgent"

and ``--agent mine`` means ``--agent my_pkg.agents:MyAgent``: that is what the configuration says
from then on, what travels, and what an actor host is asked to allow. Only what the operator typed
is looked up, and nothing is imported for it. Our own names are never looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from vedette_rl.import_by_name import is_import_name
from vedette_services.config.settings import Table

GROUPS: Mapping[str, tuple[str, ...]] = {
    "vedette.agents": ("agent", "name"),
    "vedette.networks": ("agent", "network"),
    "vedette.explorations": ("agent", "exploration", "kind"),
    "vedette.step_processors": ("actors", "step_processor"),
    "vedette.recorders": ("learner", "recorders"),
}
"""The groups of entry points, and the key of the configuration that each gives names for."""

MLFLOW = "vedette_services.mlflow:MlflowRecorder"
WANDB = "vedette_services.wandb:WandbRecorder"

OURS: Mapping[str, tuple[str, ...]] = {
    "vedette.agents": ("dqn", "iqn", "sac"),
    "vedette.networks": ("auto", "mlp", "cnn"),
    "vedette.explorations": ("ladder", "linear", "constant", "softmax"),
    "vedette.step_processors": ("n_step",),
    "vedette.recorders": ("tensorboard", "csv", "jsonl", "mlflow", "wandb"),
}
"""Names that come with Vedette. All but two recorders stand for themselves."""


def expand_plugin_names(given: Mapping[str, Any]) -> Table:
    """Replace every name of a plugin in settings by the ``module:Name`` that it stands for.

    A name that no package declares stays: the configuration's own check refuses it.
    """
    table = dict(given)
    for group, path in GROUPS.items():
        table = _at(table, path, group)
    return table


def _at(table: Table, path: tuple[str, ...], group: str) -> Table:
    """A copy of `table` in which the name at `path` is looked up in `group`."""
    here, *further = path
    if here not in table:
        return table
    value = table[here]
    if further:
        below = _at(value, tuple(further), group) if isinstance(value, dict) else value
        return {**table, here: below}
    if isinstance(value, list | tuple):
        return {**table, here: [_meaning(group, name) for name in value]}
    return {**table, here: _meaning(group, value)}


def _meaning(group: str, name: Any) -> Any:  # whatever was typed; only texts are names
    if not isinstance(name, str) or is_import_name(name):
        return name
    if name in OURS[group]:
        return {"mlflow": MLFLOW, "wandb": WANDB}.get(name, name)
    found = entry_points(group=group, name=name)
    return next(iter(found)).value if found else name
