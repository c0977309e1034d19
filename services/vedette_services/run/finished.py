"""A run's directory, read from the outside: what `eval` and `export` begin with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette_rl.core import ModelInfo
from vedette_services.config import RunConfig, read_config
from vedette_services.errors import NotARunError, NotInRunError
from vedette_services.run.replay_layout import replay_directory


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model that a run kept.

    Args:
        model: what a policy syncs to.
        meta: what was written beside it: run id and epoch, of the best also its evaluation.
    """

    model: ModelInfo
    meta: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run's directory and its configuration; the run may still be going on."""

    directory: Path
    config: RunConfig

    @classmethod
    def open(cls, directory: Path) -> FinishedRun:
        """Read it.

        Raises:
            NotARunError: it is none.
            ConfigError: its configuration cannot be read.
        """
        config = directory / "config.toml"
        if not config.is_file():
            raise NotARunError(directory, "config.toml")
        return cls(directory, read_config(config))

    @property
    def replay(self) -> Path:
        """Where its replay's columns are."""
        return replay_directory(self.config, self.directory)

    def load_model(self, checkpoint: str | None) -> SavedModel:
        """The model of a checkpoint; None: the best one.

        Args:
            checkpoint: its optimization steps, or ``latest``.

        Raises:
            NotInRunError: there is none, or not this one.
            CheckpointError: it cannot be read.
        """
        return self._load_best() if checkpoint is None else self._load_checkpoint(checkpoint)

    def _load_checkpoint(self, which: str) -> SavedModel:
        from vedette_rl.agents.registry import agent_type
        from vedette_rl.checkpoint import Checkpoints
        from vedette_rl.envs.make import probe_environment
        from vedette_rl.state_file import read_state

        found = Checkpoints(self.directory / "checkpoints", keep=1).list()
        wanted = [path for path in found if which in ("latest", path.name)]
        if not wanted:
            have = ", ".join(path.name for path in found) or "none"
            raise NotInRunError(self.directory, f"checkpoint {which} (it has {have})")
        state, meta = read_state(wanted[-1])
        agent = agent_type(self.config.agent.name).build_agent(
            self.config.agent,
            probe_environment(self.config.env),
            device="cpu",
            seed=self.config.seed,
        )
        agent.set_state(state["agent"])
        model = agent.model_info()
        known: dict[str, Any] = {key: meta[key] for key in ("run_id", "epoch") if key in meta}
        return SavedModel(model, known | {"version": model.version})

    def _load_best(self) -> SavedModel:
        from vedette_rl.state_file import read_state

        place = self.directory / "best"
        if not place.is_dir():
            raise NotInRunError(
                self.directory,
                "best/: no evaluation of it has ended yet; --checkpoint latest takes what it has",
            )
        state, meta = read_state(place)
        return SavedModel(ModelInfo(int(meta["version"]), state["model"]), dict(meta))
