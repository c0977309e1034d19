"""Evaluations of a finished run and of exported policies."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vedette_rl.core import Evaluation, Policy
from vedette_rl.envs.altering_wrappers import describe_altering
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import described_spaces
from vedette_rl.envs.registry import AllowImport
from vedette_rl.envs.spaces import Spaces, declared_spaces, differing_part
from vedette_rl.errors import ImportNotAllowedError, PolicyFileError
from vedette_rl.evaluation.evaluator import GreedyEvaluator
from vedette_rl.evaluation.video import EpisodeVideo, check_video_path, write_video
from vedette_rl.exported import PolicyFile, read_policy
from vedette_services.config.parts import EvaluationConfig
from vedette_services.host.env_workers import ProcessEnvs
from vedette_services.run.finished import FinishedRun, build_greedy_policy

log = logging.getLogger("vedette.evaluation")

_OTHER_EPISODES = 1_000_000
"""Added to the seed of a run's evaluations: the best model was selected by those episodes."""


_SEEDS = 2**31


def evaluate_run(
    directory: Path,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    checkpoint: str | None = None,
    video: Path | None = None,
    allow_import: Collection[str] = (),
) -> tuple[Evaluation, int]:
    """Play the policy of a run greedily, and make a video of its first episode.

    Args:
        directory: the run's.
        episodes: how many; None: as many as the run's own evaluations play.
        seed: of the first episode; None: of other episodes than the run's own evaluations, by which
            the best model was selected.
        checkpoint: optimization steps of the model, or ``latest``; None: the best model.
        video: a ``.gif`` or ``.mp4`` to write.
        allow_import: packages that it may import, whoever has begun the run.

    Returns:
        The evaluation, and the number of frames in the video.

    Raises:
        NotARunError: there is no such run.
        ImportPermissionError: it imports what nobody has allowed.
        NotInRunError: it has no such model.
        VideoError: the video cannot be made here.
    """
    if video is not None:
        check_video_path(video)
    run = FinishedRun.open(directory, allow_import)
    run.check_imports("env", "agent")
    saved = run.load_model(checkpoint)

    def make_policy(spaces: Spaces) -> Policy:
        policy = build_greedy_policy(run.config, spaces)
        policy.sync_model(saved.model)
        return policy

    playing = PolicyEvaluation(run.config.env, run.config.evaluation, saved.meta)
    return playing.play(make_policy, saved.model.version, episodes, seed, video)


@dataclass(frozen=True, slots=True)
class PolicyEvaluation:
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
        make_policy: Callable[[Spaces], Policy],
        version: int,
        episodes: int | None,
        seed: int | None,
        video: Path | None,
    ) -> tuple[Evaluation, int]:
        """Play, and record the first episode where that is asked for.

        Args:
            make_policy: makes the policy for the spaces of the environments that are played, so
                that none is made to learn of them.
        """
        own = self.evaluation
        evaluator = GreedyEvaluator(
            self.env,
            episodes or own.episodes,
            (own.seed + _OTHER_EPISODES) % _SEEDS if seed is None else seed,
            side_by_side=own.envs,
            max_episode_steps=own.max_episode_steps,
            allow_import=self.allow_import,
            make_processes=ProcessEnvs,
        )
        with closing(evaluator):
            description = evaluator.open().description
            for line in describe_altering(description.altering):
                log.warning("%s", line)
            here = described_spaces(description, self.env)
            policy = make_policy(declared_spaces(self.env) or here)
            found = evaluator.evaluate(policy, version)
        found = replace(found, selected="return_mean" in self.meta, fresh_seeds=self._fresh(found))
        if video is None:
            return found, 0
        with closing(EpisodeVideo(self.env, found.seed)) as camera:
            return found, write_video(video, camera.frames(policy), camera.fps)

    def _fresh(self, found: Evaluation) -> bool:
        """True if the run's own evaluations, by which this model was selected, played none of these
        episodes."""
        own = self.evaluation
        confirmed = self.meta.get("fresh", own.confirm > 0)  # release 0.3 did not say it
        return not own.plays(found.seed, found.episodes, fresh=bool(confirmed))


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
    playing = read_evaluation(path, found, allow_import)

    def make_policy(here: Spaces) -> Policy:
        if differing_part(here, found.agent_spaces):
            why = f"{playing.env.id} has other spaces here than when it was trained"
            raise PolicyFileError(path, why)
        return found.make_policy()

    return playing.play(make_policy, found.model.version, episodes, seed, video)


def read_evaluation(
    path: Path, found: PolicyFile, allow_import: Collection[str]
) -> PolicyEvaluation:
    """Return how the policy of a file is played, which may import what is allowed.

    Raises:
        PolicyFileError: it does not say how its environment is made.
        ImportNotAllowedError: its environment imports another package.
    """
    env, evaluation = _played(path, found)
    if env.module is not None and env.module.partition(".")[0] not in allow_import:
        raise ImportNotAllowedError(env.module, env.id)  # before anything is made

    def is_allowed(module: str) -> bool:
        return module.partition(".")[0] in allow_import

    return PolicyEvaluation(env, evaluation, found.meta, is_allowed)


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
