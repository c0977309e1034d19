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
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from vedette_rl.import_by_name import is_import_name
from vedette_services.config.settings import Table

GROUPS: Mapping[str, tuple[str, ...]] = {
    "vedette.agents": ("agent", "name"),
    "vedette.networks": ("agent", "network"),
    "vedette.explorations": ("agent", "exploration", "kind"),
    "vedette.step_processors": ("actors", "step_processor"),
    "vedette.replays": ("replay", "name"),
    "vedette.recorders": ("learner", "recorders"),
}
"""The groups of entry points, and the key of the configuration that each gives names for."""

MLFLOW = "vedette_services.mlflow:MlflowRecorder"
WANDB = "vedette_services.wandb:WandbRecorder"

OURS: Mapping[str, Mapping[str, str]] = {
    "vedette.agents": {
        "dqn": "deep Q-network, double, with n-step returns; for discrete actions",
        "iqn": "implicit quantile network, the distribution of returns; for discrete actions",
        "sac": "soft actor-critic with a learned temperature; for continuous actions",
        "td3": "twin delayed deep deterministic policy gradient; for continuous actions",
        "appo": "asynchronous PPO with V-trace, from a queue; for discrete and continuous actions",
    },
    "vedette.networks": {
        "auto": "cnn for images, else mlp",
        "mlp": "fully connected layers of agent.hidden_sizes",
        "cnn": "the convolutions of Mnih et al. 2015, then fully connected layers",
    },
    "vedette.explorations": {
        "auto": "linear for a small fleet, ladder for a large one",
        "ladder": "an epsilon of its own for each environment (Ape-X)",
        "linear": "one epsilon for all, falling over the first versions of the model",
        "constant": "one epsilon for all",
        "softmax": "actions with probabilities from their values",
    },
    "vedette.step_processors": {
        "n_step": "transitions over agent.n_step steps",
        "her": "hindsight: each episode again with goals that were reached in it",
    },
    "vedette.replays": {"auto": "uniform, or proportional with replay.prioritized"},
    "vedette.recorders": {
        "tensorboard": "event files in RUN/tensorboard",
        "csv": "RUN/records.csv",
        "jsonl": "RUN/records.jsonl",
        "mlflow": "the MLflow server of MLFLOW_TRACKING_URI; needs the extra mlflow",
        "wandb": "Weights & Biases, online or WANDB_MODE=offline; needs the extra wandb",
    },
}
"""Names that come with Vedette, described. All but two recorders stand for themselves."""


@dataclass(frozen=True, slots=True)
class PartName:
    """A short name that the configuration knows.

    Args:
        name: the name that is typed.
        origin: the distribution that declares it; "vedette" for ours.
        what: its description; for those of others the ``module:Name`` that it stands for.
    """

    name: str
    origin: str
    what: str


def part_names(group: str) -> list[PartName]:
    """List the names of a group: ours, then those of installed packages. Nothing is imported."""
    ours = [PartName(name, "vedette", what) for name, what in OURS[group].items()]
    others = {
        point.name: PartName(point.name, point.dist.name if point.dist else "-", point.value)
        for point in sorted(entry_points(group=group), key=lambda point: point.name)
        if point.name not in OURS[group]
    }
    return [*ours, *others.values()]


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
    declared = entry_points(group=group, name=name)
    return next(iter(declared)).value if declared else name
