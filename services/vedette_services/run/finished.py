"""A run's directory, opened to evaluate or export one of its models."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import ModelInfo, Policy
from vedette_rl.core.learning import check_model_info, restore_agent
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import environment_own_spaces, environment_spaces
from vedette_rl.envs.spaces import Spaces
from vedette_rl.import_by_name import is_import_name
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.state_file import read_state
from vedette_services.config import RunConfig, read_config
from vedette_services.config.import_permission import check_run_imports, is_importable
from vedette_services.config.imported_names import imported_names, package_of
from vedette_services.config.loading import read_toml
from vedette_services.config.saving import config_table
from vedette_services.config.settings import Table
from vedette_services.errors import NotInRunError, UsageError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.finding import not_a_run
from vedette_services.run.provenance import read_provenance
from vedette_services.run.replay_layout import replay_directory
from vedette_services.run.sources import source_directory


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model in a run directory.

    Args:
        meta: its run id and epoch; for the best model also its evaluation.
    """

    model: ModelInfo
    meta: dict[str, Any]


@dataclass(frozen=True)
class FinishedRun:
    """A run's directory and its configuration; the run may still be going on.

    Permission is asked for each part where something of it is imported: a replay can be exported
    without that of an environment that nobody makes.

    Args:
        allow_import: packages that it may import, whoever has begun the run.
    """

    directory: Path
    config: RunConfig
    allow_import: Collection[str] = ()

    @classmethod
    def open(cls, directory: Path, allow_import: Collection[str] = ()) -> FinishedRun:
        """Read the configuration of a run, which imports a custom agent.

        Args:
            allow_import: packages that it may import, whoever has begun the run.

        Raises:
            ImportPermissionError: its agent is one that nobody has allowed.
            NotARunError: the directory holds no run.
            ConfigError: its configuration cannot be read.
            UsageError: the module of its agent is not found from here.
        """
        config = directory / "config.toml"
        if not config.is_file():
            raise not_a_run(directory, "config.toml")
        table = read_toml(config)
        agent = table.get("agent")
        named = agent.get("name") if isinstance(agent, dict) else None
        if isinstance(named, str) and is_import_name(named):
            _check_modules(directory, table, ("agent",))
        return cls(directory, read_config(config, allow_import=allow_import), allow_import)

    def check_imports(self, *parts: str) -> None:
        """Check that what parts of the configuration name may be imported, and is found from here.

        Args:
            parts: ``env``, ``agent``.

        Raises:
            ImportPermissionError: it imports what nobody has allowed.
            UsageError: a module is not found from here.
        """
        table = config_table(self.config)
        _check_modules(self.directory, table, parts)
        check_run_imports(self.directory, table, self.allow_import, parts=parts)

    def may_make_environment(self, module: str) -> bool:
        """Decide if its environment may import a module, as `make_env` asks it.

        Raises:
            ImportPermissionError, UsageError: as `check_imports`.
        """
        self.check_imports("env")
        return True

    @cached_property
    def spaces(self) -> Spaces:
        """The spaces of its environment, which is made for them unless they are declared."""
        if not self.config.env.is_declared:
            self.check_imports("env")
        return environment_spaces(self.config.env)

    @cached_property
    def own_spaces(self) -> Spaces:
        """Its spaces, with actions as its environment names them; one environment is made for them
        unless they are declared."""
        if not self.config.env.is_declared:
            self.check_imports("env")
        return environment_own_spaces(self.config.env)

    @property
    def replay(self) -> Path:
        """The directory of the replay."""
        return replay_directory(self.config, self.directory)

    @property
    def source_directories(self) -> dict[str, Path]:
        """The directories of the replay's other sources that are there."""
        named = {
            name: source_directory(self.config, self.directory, name)
            for name in self.config.replay.sources
        }
        return {name: place for name, place in named.items() if place.is_dir()}

    def played(self, env: EnvConfig | None = None) -> dict[str, Any]:
        """Return how evaluations play, for the header of an exported policy.

        Args:
            env: in place of the run's environment.
        """
        made = (env or self.config.env).for_evaluation().model_dump(mode="json")
        return {"env": made, **self.config.evaluation.for_managers}

    def load_model(self, checkpoint: str | None) -> SavedModel:
        """Load a model.

        Args:
            checkpoint: its optimization steps, or ``latest``; None: the best model.

        Raises:
            NotInRunError: the run has no such model.
            CheckpointError: it cannot be read.
            ImportPermissionError: a checkpoint's agent imports what nobody has allowed.
        """
        return self._load_best() if checkpoint is None else self._load_checkpoint(checkpoint)

    def _load_checkpoint(self, which: str) -> SavedModel:
        checkpoints = Checkpoints(self.directory / "checkpoints", keep=1)
        found = checkpoints.read(which)
        if found is None:
            have = ", ".join(path.name for path in checkpoints.list()) or "none"
            raise NotInRunError(self.directory, f"checkpoint {which} (it has {have})")
        state = found.state
        meta = found.meta
        self.check_imports("agent")
        agent = agent_kind(self.config.agent.name).build_agent(
            self.config.agent,
            self.spaces,
            device="cpu",
            seed=self.config.seed,
        )
        name = self.config.agent.name
        restore_agent(name, agent, state["agent"], int(found.path.name))
        model = check_model_info(name, agent.model_info())
        known: dict[str, Any] = {key: meta[key] for key in ("run_id", "epoch")}
        return SavedModel(model, known | {"version": model.version})

    def _load_best(self) -> SavedModel:
        place = self.directory / "best"
        if not place.is_dir():
            raise NotInRunError(
                self.directory,
                "best/: no evaluation of it has ended yet; --checkpoint latest takes what it has",
            )
        state, meta = read_state(place)
        return SavedModel(ModelInfo(int(meta["version"]), state["model"]), dict(meta))

    def build_greedy_policy(self) -> Policy:
        """Build the policy that its evaluations play; it has no model yet.

        Raises:
            ImportPermissionError, UsageError: as `check_imports`.
        """
        self.check_imports("agent")
        return build_greedy_policy(self.config, self.spaces)


def build_greedy_policy(config: RunConfig, spaces: Spaces) -> Policy:
    """Build the policy that evaluations of a run play; it has no model yet."""
    return agent_kind(config.agent.name).build_policy(
        config.agent, spaces, ranks=np.zeros(1), seed=config.seed
    )


def _check_modules(directory: Path, table: Table, parts: Collection[str]) -> None:
    """Refuse a run whose own modules are not found from here, and say where they were."""
    for name in imported_names({part: table.get(part) for part in parts}):
        package = package_of(name)
        if is_importable(package):
            continue
        starts = read_provenance(RunDirectory(directory))
        home = next((start.directory for start in starts[-1:]), "")
        there = any((Path(home) / name).exists() for name in (package, f"{package}.py"))
        fix = f"run the command in {home}" if home and there else "run the command in its folder"
        why = f"it needs module {package!r}, which is not found here"
        raise UsageError(f"{directory}: {why}; {fix}")
