"""A run's directory, opened to evaluate or export one of its models."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent, Evaluation, ModelInfo, Policy
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import environment_spaces, probe_environment
from vedette_rl.envs.registry import AllowImport
from vedette_rl.envs.spaces import differing_part
from vedette_rl.errors import CheckpointError, ImportNotAllowedError, PolicyFileError
from vedette_rl.evaluation.evaluator import GreedyEvaluator
from vedette_rl.evaluation.video import EpisodeVideo, check_video_path, write_video
from vedette_rl.exported import PolicyFile, read_policy
from vedette_rl.import_by_name import find_import_names
from vedette_rl.networks.layers import MEAN, SCALE
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
from vedette_services.config import RunConfig, read_config
from vedette_services.config.loading import read_toml
from vedette_services.config.parts import EvaluationConfig, LearnerConfig
from vedette_services.errors import NotARunError, NotInRunError, SettingError, UsageError
from vedette_services.host.env_workers import ProcessEnvs
from vedette_services.run.directory import RunDirectory
from vedette_services.run.overview import find_runs
from vedette_services.run.provenance import read_provenance
from vedette_services.run.replay_layout import replay_directory
from vedette_services.run.sources import source_directory

_OTHER_EPISODES = 1_000_000
"""Added to the seed of a run's evaluations: the best model was selected by those episodes."""
_SEEDS = 2**31


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model in a run directory.

    Args:
        meta: its run id and epoch; for the best model also its evaluation.
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
        """Read the configuration of a run.

        Raises:
            NotARunError: the directory holds no run.
            ConfigError: its configuration cannot be read.
            UsageError: it names a module that is not found from here.
        """
        config = directory / "config.toml"
        if not config.is_file():
            runs = find_runs(directory) if directory.is_dir() else []
            fix = f"name one of its {len(runs)} runs, such as {runs[0]}" if runs else ""
            raise NotARunError(directory, "config.toml", fix)
        _check_modules(directory)
        return cls(directory, read_config(config))

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
        """
        return self._load_best() if checkpoint is None else self._load_checkpoint(checkpoint)

    def _load_checkpoint(self, which: str) -> SavedModel:
        checkpoints = Checkpoints(self.directory / "checkpoints", keep=1)
        found = checkpoints.read(which)
        if found is None:
            have = ", ".join(path.name for path in checkpoints.list()) or "none"
            raise NotInRunError(self.directory, f"checkpoint {which} (it has {have})")
        state, meta = found.state, found.meta
        agent = agent_kind(self.config.agent.name).build_agent(
            self.config.agent,
            environment_spaces(self.config.env),
            device="cpu",
            seed=self.config.seed,
        )
        agent.set_state(state["agent"])
        model = agent.model_info()
        known: dict[str, Any] = {key: meta[key] for key in ("run_id", "epoch") if key in meta}
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


def _check_modules(directory: Path) -> None:
    """Refuse a run whose own modules are not found from here, and say where they were."""
    run = RunDirectory(directory)
    table = read_toml(run.config_file)
    env = table.get("env", {})
    declared = env.get("id") if "observation" in env else ""  # imported only where it is played
    for name in find_import_names(table):
        if name == declared:
            continue
        module = name.partition(":")[0].partition(".")[0]
        if module in sys.modules or find_spec(module) is not None:
            continue
        home = next((start.directory for start in read_provenance(run)[-1:]), "")
        there = any((Path(home) / name).exists() for name in (module, f"{module}.py"))
        fix = f"run the command in {home}" if home and there else "run the command in its folder"
        raise UsageError(f"{directory}: it needs module {module!r}, which is not found here; {fix}")


@dataclass(frozen=True, slots=True)
class WeightsSource:
    """The weights of another run, for one that begins.

    Args:
        name: of the model, for people.
        meta: of the model.
        parts: of an agent's state, arrays by name.
        model: the arrays of the network that acts, where only these are kept.
    """

    name: str
    meta: dict[str, Any]
    parts: dict[str, Mapping[str, Any]]
    model: Mapping[str, Any]

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
        parts, model = weight_parts(found.state.get("agent", {})), found.state.get("model", {})
        if array := find_not_finite({**parts, "model": model}):
            why = f"{array} of {name} is not finite: learning had diverged"
            raise SettingError("learner.init_from", why, "name another by learner.init_checkpoint")
        return cls(name, found.meta, parts, model)

    def weights_for(self, agent: Agent) -> TakenWeights:
        """The weights that fit an agent, in its state.

        Raises:
            SettingError: none fits.
        """
        state, parts = agent.get_state(), self.parts
        if self.model:  # of the network that acts, and of those that are like it
            from vedette_rl.networks.torch_network import split_statistics  # it imports torch

            acting, _ = split_statistics(agent.model_info().arrays, 0)
            weights, statistics = split_statistics(self.model, self.meta.get("version", 0))
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
    run, which = Path(config.init_from or ""), config.init_checkpoint
    if not run.is_dir():
        fix = "name a run's directory"
        raise SettingError("learner.init_from", f"{run}: there is no such folder", fix)
    checkpoints, best = Checkpoints(run / "checkpoints", keep=1), run / "best"
    try:
        found = checkpoints.read(which)
        if which == "best" and best.is_dir():
            found = LoadedCheckpoint(best, *read_state(best), ())
    except CheckpointError as e:
        raise SettingError("learner.init_from", str(e), "name another model") from e
    if found is None:
        have = [path.name for path in checkpoints.list()] + ["best"] * best.is_dir()
        why = f"{run} has no model {which!r} (it has {', '.join(have) or 'none'})"
        fix = "name one of these by learner.init_checkpoint, or " if have else "name "
        raise SettingError("learner.init_from", why, f"{fix}another run's directory")
    return found


def _check_not_erased(model: Path, out: Path) -> None:
    """Refuse weights of the run in `out`, which this start erases, by whatever path."""
    run, model = RunDirectory(out), model.resolve()
    if any(model.is_relative_to(place.resolve()) for place in (run.checkpoints, run.best)):
        why = f"--fresh erases its weights, which are those of the run in {out}"
        raise SettingError("learner.init_from (--init-from)", why, "choose another --out")


def _is_same(own: Any, acting: Any) -> bool:
    """True if an array of a new agent is one of its acting network's: of an encoder they share."""
    return acting is not None and np.array_equal(np.asarray(own), acting)


def describe_initial_weights(config: RunConfig, erased: Path | None = None) -> list[str]:
    """Describe which weights a new run takes over.

    Args:
        erased: directory of a run that this start erases.

    Raises:
        SettingError: `learner.init_from` names no model, one of that run, or none that fits.
    """
    model = _read_initial_model(config.learner)
    if erased is not None:
        _check_not_erased(model.path, erased)
    source = WeightsSource.of(config.learner, model)
    agent = agent_kind(config.agent.name).build_agent(
        config.agent, environment_spaces(config.env), device="cpu", seed=config.seed
    )
    found = source.weights_for(agent)
    lines, acting = found.describe(source.name), agent.model_info().arrays.keys()
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


def evaluate_run(
    directory: Path,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    checkpoint: str | None = None,
    video: Path | None = None,
) -> tuple[Evaluation, int]:
    """Play the policy of a run greedily, and make a video of its first episode.

    Args:
        directory: the run's.
        episodes: how many; None: as many as the run's own evaluations play.
        seed: of the first episode; None: of other episodes than the run's own evaluations, by which
            the best model was selected.
        checkpoint: optimization steps of the model, or ``latest``; None: the best model.
        video: a ``.gif`` or ``.mp4`` to write.

    Returns:
        The evaluation, and the number of frames in the video.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no such model.
        VideoError: the video cannot be made here.
    """
    if video is not None:
        check_video_path(video)
    run = FinishedRun.open(directory)
    saved = run.load_model(checkpoint)
    policy = build_greedy_policy(run.config)
    policy.sync_model(saved.model)
    playing = Playing(run.config.env, run.config.evaluation, saved.meta)
    return playing.play(policy, saved.model.version, episodes, seed, video)


@dataclass(frozen=True, slots=True)
class Playing:
    """How a policy is played once more, after its run or beside it.

    Args:
        evaluation: how the run's own evaluations play.
        meta: of the saved model; that of the best one has its evaluation.
        allow_import: as of `make_env`.
    """

    env: EnvConfig
    evaluation: EvaluationConfig
    meta: Mapping[str, Any]
    allow_import: AllowImport | None = None

    def play(
        self,
        policy: Policy,
        version: int,
        episodes: int | None,
        seed: int | None,
        video: Path | None,
    ) -> tuple[Evaluation, int]:
        own = self.evaluation
        evaluator = GreedyEvaluator(
            self.env,
            episodes or own.episodes,
            (own.seed + _OTHER_EPISODES) % _SEEDS if seed is None else seed,
            max_episode_steps=own.max_episode_steps,
            allow_import=self.allow_import,
            make_processes=ProcessEnvs,
        )
        with closing(evaluator):
            found = evaluator.evaluate(policy, version)
        found = replace(found, selected="return_mean" in self.meta, fresh_seeds=self._fresh(found))
        if video is None:
            return found, 0
        with closing(EpisodeVideo(self.env, found.seed)) as camera:
            return found, write_video(video, camera.frames(policy), camera.fps)

    def _fresh(self, found: Evaluation) -> bool:
        """True if the run's own evaluations played none of these episodes."""
        own = self.evaluation
        begins_after = found.seed >= own.seed + own.episodes
        return begins_after or found.seed + found.episodes <= own.seed


def evaluate_policy(
    path: Path,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    video: Path | None = None,
    allow_import: Collection[str] = (),
) -> tuple[Evaluation, int]:
    """Play an exported policy greedily; the file is not trusted.

    Args:
        path: what `export_policy` wrote as ``numpy`` or ``safetensors``.
        episodes, seed: as of `evaluate_run`.
        video: a ``.gif`` or ``.mp4`` to write.
        allow_import: packages from which its agent and environment may import.

    Returns:
        The evaluation, and the number of frames in the video.

    Raises:
        PolicyFileError: it holds no policy, or none that says how its environment is made.
        ImportNotAllowedError: its environment imports another package.
        ModelMismatchError: its arrays are not those of its network.
    """
    if video is not None:
        check_video_path(video)
    found = read_policy(path, allow_import=allow_import)
    playing = played_environment(path, found, allow_import)
    here = probe_environment(playing.env, allow_import=playing.allow_import)
    if differing_part(here, found.agent_spaces):
        why = f"{playing.env.id} has other spaces here than when it was trained"
        raise PolicyFileError(path, why)
    return playing.play(found.make_policy(), found.model.version, episodes, seed, video)


def played_environment(path: Path, found: PolicyFile, allow_import: Collection[str]) -> Playing:
    """Return how the policy of a file is played, which may import what is allowed.

    Raises:
        PolicyFileError: it does not say how its environment is made.
        ImportNotAllowedError: its environment imports another package.
    """
    env, evaluation = _played(path, found)
    # A wrapper of ours is a class of wrappers; an environment may be any function, of ours too.
    if env.module is not None and env.module.partition(".")[0] not in allow_import:
        raise ImportNotAllowedError(env.module, env.id)

    def is_allowed(module: str) -> bool:
        return module.partition(".")[0] in {"vedette_rl", *allow_import}

    return Playing(env, evaluation, found.meta, is_allowed)


def _played(path: Path, found: PolicyFile) -> tuple[EnvConfig, EvaluationConfig]:
    """Return the environment of a policy, and how its run's evaluations played."""
    try:
        played = dict(found.meta["played"])
        env = EnvConfig.model_validate_json(json.dumps(played.pop("env")), strict=True)
        evaluation = EvaluationConfig.model_validate_json(json.dumps(played), strict=True)
    except (KeyError, TypeError) as error:
        why = "it does not say how it is evaluated: export it again with this version"
        raise PolicyFileError(path, why) from error
    except ValueError as error:
        raise PolicyFileError(path, f"how it is evaluated makes no sense ({error})") from error
    return env, evaluation


def build_greedy_policy(config: RunConfig) -> Policy:
    """Build the policy that evaluations of a run play; it has no model yet."""
    return agent_kind(config.agent.name).build_policy(
        config.agent, environment_spaces(config.env), ranks=np.zeros(1), seed=config.seed
    )
