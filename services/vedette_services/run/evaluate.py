"""Playing the policy of a run, as its own evaluations did."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vedette_rl.agents.registry import agent_type
from vedette_rl.core import Evaluation, ModelInfo, Policy
from vedette_rl.envs.make import probe_environment
from vedette_rl.evaluation.film import EpisodeVideo, check_video_path, write_video
from vedette_rl.evaluation.greedy import GreedyEvaluator
from vedette_services.config import RunConfig
from vedette_services.run.finished import FinishedRun


def evaluate_run(
    directory: Path,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    checkpoint: str | None = None,
    video: Path | None = None,
) -> tuple[Evaluation, int]:
    """Play the policy of a run greedily, and film its first episode.

    Args:
        directory: the run's.
        episodes: as many as the run's own evaluations play, where None.
        seed: of the first episode; that of the run's own evaluations, where None.
        checkpoint: its optimization steps, or ``latest``; the best model, where None.
        video: a ``.gif`` or ``.mp4`` to write.

    Returns:
        The evaluation, and how many pictures the film has.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no such model.
        VideoError: the film cannot be made here.
    """
    if video is not None:
        check_video_path(video)
    run = FinishedRun.open(directory)
    model = run.load_model(checkpoint).model
    policy = load_acting_policy(run.config, model)
    found = play_episodes(run, policy, model.version, episodes, seed)
    return found, record_video(run, policy, found.seed, video) if video is not None else 0


def load_acting_policy(config: RunConfig, model: ModelInfo) -> Policy:
    """The run's policy, acting on a model."""
    policy = agent_type(config.agent.name).build_policy(
        config.agent, probe_environment(config.env), ranks=np.zeros(1), seed=config.seed
    )
    policy.sync_model(model)
    return policy


def play_episodes(
    run: FinishedRun, policy: Policy, version: int, episodes: int | None, seed: int | None
) -> Evaluation:
    """Play as the run's own evaluations did, unless told otherwise."""
    config = run.config
    evaluator = GreedyEvaluator(
        config.env,
        episodes or config.evaluation.episodes,
        config.evaluation.seed if seed is None else seed,
    )
    try:
        return evaluator.evaluate(policy, version)
    finally:
        evaluator.close()


def record_video(run: FinishedRun, policy: Policy, seed: int, path: Path) -> int:
    """Film the episode of a seed; how many pictures."""
    camera = EpisodeVideo(run.config.env, seed)
    try:
        return write_video(path, camera.frames(policy), camera.fps)
    finally:
        camera.close()
