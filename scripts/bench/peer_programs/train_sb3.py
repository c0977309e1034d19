"""Stable-Baselines3, or SBX's CrossQ, on one environment: the peers that we are measured beside.

Run by `scripts/bench/run sb3` and `scripts/curves` in an environment of its own. Evaluates greedily
on the same episodes each time, with the seeds that our evaluations have. Prints one JSON line:
whether and when an evaluation first returned the target on average; wall time without evaluations
too; and every evaluation.
"""

import argparse
import importlib
import json
import time
from importlib.metadata import version

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv

ALGORITHMS = {
    "dqn": ("stable_baselines3", "DQN", "stable-baselines3"),
    "sac": ("stable_baselines3", "SAC", "stable-baselines3"),
    "td3": ("stable_baselines3", "TD3", "stable-baselines3"),
    "crossq": ("sbx", "CrossQ", "sbx-rl"),
}
"""Module, class and package."""
EVALUATION_SEED = 10_000


def build(args: argparse.Namespace) -> BaseAlgorithm:
    """The algorithm with its defaults but for `kwargs`, on one environment."""
    module, name, _ = ALGORITHMS[args.algorithm]
    kwargs = json.loads(args.kwargs)
    # "steps" in the place of a fraction: exploration ends there however long the run is.
    if steps := kwargs.pop("exploration_steps", None):
        kwargs["exploration_fraction"] = steps / args.steps
    envs = make_envs(args, 1, args.seed)
    if std := kwargs.pop("noise_std", None):  # of actions scaled to [-1, 1]
        dims = envs.action_space.shape
        kwargs["action_noise"] = NormalActionNoise(np.zeros(dims), np.full(dims, std))
    algorithm = getattr(importlib.import_module(module), name)
    return algorithm("MlpPolicy", envs, seed=args.seed, device="cpu", **kwargs)


def make_envs(args: argparse.Namespace, count: int, seed: int) -> VecEnv:
    limit = {"max_episode_steps": args.max_episode_steps} if args.max_episode_steps else {}
    return make_vec_env(args.env, n_envs=count, seed=seed, env_kwargs=limit)


class Evaluations(BaseCallback):
    """Evaluates at an interval and stops at a target."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.every = args.every
        self.episodes = args.episodes
        self.target = args.target
        self.next = args.every
        self.began = time.perf_counter()
        self.evaluation_s = 0.0
        self.best = float("-inf")
        self.evaluations: list[dict[str, float]] = []
        self.envs = make_envs(args, args.episodes, EVALUATION_SEED)  # one each: seeds are ours

    def _on_step(self) -> bool:
        if self.num_timesteps < self.next:
            return True
        self.next += self.every
        began = time.perf_counter()
        self.envs.seed(EVALUATION_SEED)
        mean, _ = evaluate_policy(self.model, self.envs, n_eval_episodes=self.episodes)
        self.evaluation_s += time.perf_counter() - began
        self.best = max(self.best, float(mean))
        self.evaluations.append(
            {
                "env_steps": self.num_timesteps,
                "opt_steps": self.model._n_updates,
                "return_mean": float(mean),
                "wall_s": time.perf_counter() - self.began,
            }
        )
        return self.best < self.target


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", required=True)
    parser.add_argument("--algorithm", choices=ALGORITHMS, required=True)
    parser.add_argument("--kwargs", default="{}", help="of the algorithm, as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, required=True, help="environment steps at most")
    parser.add_argument("--every", type=int, required=True, help="steps between evaluations")
    parser.add_argument("--episodes", type=int, default=20, help="of an evaluation")
    parser.add_argument("--max-episode-steps", type=int, default=0, help="0: its own limit")
    parser.add_argument("--target", type=float, default=float("inf"), help="return that ends it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = build(args)
    callback = Evaluations(args)
    began = time.perf_counter()
    model.learn(args.steps, callback=callback)
    wall_s = time.perf_counter() - began
    package = ALGORITHMS[args.algorithm][2]
    print(
        json.dumps(
            {
                "what": package,
                "program": f"{package} {version(package)}",
                "seed": args.seed,
                "solved": callback.best >= args.target,
                "wall_s": round(wall_s, 1),
                "wall_without_evaluation_s": round(wall_s - callback.evaluation_s, 1),
                "env_steps": model.num_timesteps,
                "opt_steps": model._n_updates,
                "evaluations": callback.evaluations,
            }
        )
    )


if __name__ == "__main__":
    main()
