"""Weights of another run, with which a new one begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.envs.spaces import Spaces
from vedette_rl.import_by_name import is_import_name
from vedette_rl.networks.layers import MEAN, SCALE
from vedette_rl.settings.for_peers import is_learner_only
from vedette_rl.settings.stored import IN_WEIGHTS, marks_of
from vedette_rl.storage.checkpoints import (
    Checkpoints,
    LoadedCheckpoint,
    TakenWeights,
    find_not_finite,
    first_few,
    take_weights,
    weight_parts,
)
from vedette_rl.storage.state_file import read_state
from vedette_services.config import RunConfig
from vedette_services.config.loading import read_toml
from vedette_services.config.parts import LearnerConfig
from vedette_services.config.without_effect import unused_keys_of_agent
from vedette_services.errors import ConfigError, SettingError, config_errors
from vedette_services.run.directory import RunDirectory


@dataclass(frozen=True, slots=True)
class WeightsSource:
    """The weights of another run, for one that begins.

    Args:
        name: of the model, for people.
        meta: of the model.
        parts: of an agent's state, arrays by name.
        model: the arrays of the network that acts, where only these are kept.
        opts_per_block: optimization steps on a block of its queue; 1 without a queue.
    """

    name: str
    meta: dict[str, Any]
    parts: dict[str, Mapping[str, Any]]
    model: Mapping[str, Any]
    opts_per_block: int = 1

    @classmethod
    def open(cls, config: LearnerConfig) -> WeightsSource:
        """Read what `learner.init_from` names.

        Raises:
            SettingError: it is no run, or has no such model, or a diverged one.
        """
        return cls.of(config, _read_initial_model(config))

    @classmethod
    def of(cls, config: LearnerConfig, found: LoadedCheckpoint) -> WeightsSource:
        """Of the model that was read.

        Raises:
            SettingError: it has diverged.
        """
        best = config.init_checkpoint == "best"
        name = f"{config.init_from}, {'best' if best else f'checkpoint {found.path.name}'}"
        parts = weight_parts(found.state.get("agent", {}))
        model = found.state.get("model", {})
        if array := find_not_finite({**parts, "model": model}):
            why = f"{array} of {name} is not finite: learning had diverged"
            raise SettingError("learner.init_from", why, "name another by learner.init_checkpoint")
        return cls(name, found.meta, parts, model, _opts_per_block(Path(config.init_from or "")))

    def weights_for(self, agent: Agent) -> TakenWeights:
        """The weights that fit an agent, in its state.

        Raises:
            SettingError: none fits.
        """
        state = agent.get_state()
        parts = self.parts
        if self.model:  # of the network that acts, and of those that are like it
            from vedette_rl.networks.torch_network import split_statistics  # it imports torch

            acting, _ = split_statistics(agent.model_info().arrays, 0)
            counted = self.meta["version"]
            if "observed" in state:  # such an agent counts a block once
                counted //= self.opts_per_block
            weights, statistics = split_statistics(self.model, counted)
            parts = {
                part: {
                    name: weights[name]
                    for name, array in own.items()
                    if name in weights
                    and (own.keys() == acting.keys() or _is_same(array, acting.get(name)))
                }
                for part, own in weight_parts(state).items()
            }
            parts["normalizer"] = statistics
            if "observed" in state:  # those towards which an agent's statistics move
                parts["observed"] = statistics
        taken = take_weights(state, parts)
        if not taken.taken:
            why = f"no array of {self.name} fits: {first_few(taken.left)}"
            raise SettingError("learner.init_from", why, "leave it out, or choose another run")
        return taken


def _read_initial_model(config: LearnerConfig) -> LoadedCheckpoint:
    """Read the model that `learner.init_from` names.

    Raises:
        SettingError: there is none that can be read.
    """
    run = Path(config.init_from or "")
    which = config.init_checkpoint
    if not run.is_dir():
        why = "it is a file, and a run is a folder" if run.exists() else "there is no such folder"
        raise SettingError("learner.init_from", f"{run}: {why}", "name a run's directory")
    checkpoints = Checkpoints(run / "checkpoints", keep=1)
    best = run / "best"
    with config_errors("learner.init_from", "name another model"):
        found = checkpoints.read(which)
        if which == "best" and best.is_dir():
            found = LoadedCheckpoint(best, *read_state(best), ())
    if found is None:
        have = [path.name for path in checkpoints.list()] + ["best"] * best.is_dir()
        why = f"{run} has no model {which!r} (it has {', '.join(have) or 'none'})"
        fix = "name one of these by learner.init_checkpoint, or " if have else "name "
        raise SettingError("learner.init_from", why, f"{fix}another run's directory")
    return found


def _check_not_erased(model: Path, out: Path) -> None:
    """Refuse weights of the run in `out`, which this start erases, by whatever path."""
    run = RunDirectory(out)
    model = model.resolve()
    if any(model.is_relative_to(place.resolve()) for place in (run.checkpoints, run.best)):
        why = f"--fresh erases its weights, which are those of the run in {out}"
        raise SettingError("learner.init_from (--init-from)", why, "choose another --out")


def _is_same(own: Any, acting: Any) -> bool:
    """True if an array of a new agent is one of its acting network's: of an encoder they share."""
    return acting is not None and np.array_equal(np.asarray(own), acting)


def describe_initial_weights(
    config: RunConfig, spaces: Spaces, erased: Path | None = None
) -> list[str]:
    """Describe which weights a new run takes over.

    Args:
        spaces: of the run's environment.
        erased: directory of a run that this start erases.

    Raises:
        SettingError: `learner.init_from` names no model, one of that run, or none that fits, or one
            of a network that computes something else with the same arrays.
    """
    model = _read_initial_model(config.learner)
    if erased is not None:
        _check_not_erased(model.path, erased)
    source = WeightsSource.of(config.learner, model)
    agent = agent_kind(config.agent.name).build_agent(
        config.agent, spaces, device="cpu", seed=config.seed
    )
    _check_computation(config, source, agent, spaces)
    found = source.weights_for(agent)
    lines = found.describe(source.name)
    acting = agent.model_info().arrays.keys()
    taken = {name.partition("/")[2] for name in found.taken}
    if taken >= acting - {MEAN, SCALE}:
        _check_normalized(source, MEAN in acting)
    else:
        warmup = hasattr(config.agent, "uniform_warmup")
        key = "agent.uniform_warmup=true" if warmup else "agent.exploration.epsilon_start=1"
        lines.append(f"the network that acts is partly new: {key} begins with random actions")
    return lines


def _check_normalized(source: WeightsSource, normalizes: bool) -> None:
    """Refuse a whole network whose observations were scaled otherwise than they will be."""
    expected = "normalizer" in source.parts or MEAN in source.model
    if expected != normalizes:
        how = "normalised observations" if expected else "observations as they are"
        fix = f"set agent.normalize_observations={str(expected).lower()}"
        why = f"the weights of {source.name} expect {how}"
        raise SettingError("agent.normalize_observations", why, fix)


def _check_computation(
    config: RunConfig, source: WeightsSource, agent: Agent, spaces: Spaces
) -> None:
    """Refuse arrays that fit in shape, of a network that computes something else with them.

    A setting of the other run does so if it is part of the weights, and changes no shape here.
    Numbers and sizes change shapes, where they change anything.
    """
    settings = config.agent
    saved = read_agent_settings(Path(config.learner.init_from or ""))
    if saved.get("name") != settings.name:
        return  # other agents compute otherwise, and say what they begin with
    unused = unused_keys_of_agent(settings, spaces)
    now = settings.model_dump(mode="json")
    for name, field in type(settings).model_fields.items():
        before = saved.get(name, field.get_default(call_default_factory=True))  # one came later
        here = now[name]
        kinds = [isinstance(value, (str, bool, dict)) for value in (before, here)]
        if before == here or not all(kinds) or IN_WEIGHTS not in marks_of(type(settings), name):
            continue
        of_critics = bool(source.model) and is_learner_only(type(settings), name)
        if f"agent.{name}" in unused or of_critics or _is_open(before) or _is_open(here):
            continue
        other = _agent_with(settings, name, before, spaces)
        if other is not None and _shapes(other) == _shapes(agent):
            there, this = (json.dumps(value).strip('"') for value in (before, here))
            raise SettingError(
                f"agent.{name}",
                f"with the same arrays the network of {source.name} computes something else: "
                f"it has {there}, not {this}",
                f"set agent.{name}={there}, or choose another run",
            )


def _is_open(value: Any) -> bool:  # any JSON
    """True if a value does not say what is computed: it is chosen, or code of somebody's own, which
    another run's settings may name and nobody has allowed."""
    return isinstance(value, str) and (value == "auto" or is_import_name(value))


def read_agent_settings(run: Path) -> Mapping[str, Any]:
    """The settings of a run's agent; empty where none can be read."""
    try:
        found = read_toml(RunDirectory(run).config_file).get("agent")
    except ConfigError:  # weights alone may have been copied
        return {}
    return found if isinstance(found, dict) else {}


def _opts_per_block(run: Path) -> int:
    try:
        table = read_toml(RunDirectory(run).config_file)
        replay, agent = table["replay"], table["agent"]
        is_queue = replay["kind"] == "queue"
        return replay["passes"] * replay["block"] // agent["batch_size"] if is_queue else 1
    except (ConfigError, LookupError, TypeError, ZeroDivisionError):  # weights alone were copied
        return 1


def _agent_with(settings: AgentConfig, name: str, value: Any, spaces: Spaces) -> Agent | None:
    """An agent with another value of a setting; None where it cannot be made."""
    try:
        changed = type(settings).model_validate({**settings.model_dump(), name: value})
        return agent_kind(changed.name).build_agent(changed, spaces, device="cpu", seed=0)
    except Exception:  # noqa: BLE001 - a user's agent refuses combinations by whatever it likes
        return None


def _shapes(agent: Agent) -> dict[str, dict[str, tuple[int, ...]]]:
    """The shapes of an agent's weights, by part and name."""
    return {
        part: {name: tuple(array.shape) for name, array in arrays.items()}
        for part, arrays in weight_parts(agent.get_state()).items()
    }
