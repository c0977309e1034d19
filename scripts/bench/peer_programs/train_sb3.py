"""Stable-Baselines3, its RecurrentPPO, or SBX's CrossQ: the peers that we are measured beside.

Run by `scripts/bench/run sb3` and `scripts/curves` in an environment of its own. Evaluates greedily
on the same episodes each time, with the seeds that our evaluations have. Prints one JSON line:
whether and when an evaluation first returned the target on average; wall time without evaluations
too; and every evaluation.

Of the algorithm's arguments in `--kwargs` these are ours, for what rl-baselines3-zoo writes beside
them or in another way:

    n_envs                environments (1)
    normalize             observations and rewards by their running statistics (VecNormalize)
    observed              the observation's numbers that are seen, such as [0, 2]; all without it
    exploration_steps     environment steps in the place of `exploration_fraction`
    noise_std             of normal noise on actions scaled to [-1, 1]
    "lin_0.001"           for learning_rate and clip_range: falls in a line to 0
    activation_fn         in `policy_kwargs`: the name of torch's module, such as "ReLU"
"""

import argparse
import importlib
import json
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, sync_envs_normalization

ALGORITHMS = {
    "dqn": ("stable_baselines3", "DQN", "MlpPolicy", "stable-baselines3"),
    "sac": ("stable_baselines3", "SAC", "MlpPolicy", "stable-baselines3"),
    "td3": ("stable_baselines3", "TD3", "MlpPolicy", "stable-baselines3"),
    "ppo": ("stable_baselines3", "PPO", "MlpPolicy", "stable-baselines3"),
    "recurrent_ppo": ("sb3_contrib", "RecurrentPPO", "MlpLstmPolicy", "sb3-contrib"),
    "crossq": ("sbx", "CrossQ", "MlpPolicy", "sbx-rl"),
}
"""Module, class, policy and package."""
EVALUATION_SEED = 10_000


class SomeNumbers(gym.ObservationWrapper):
    """Shows these numbers of a vector alone."""

    def __init__(self, env: gym.Env, indices: list[int]) -> None:
        super().__init__(env)
        whole = env.observation_space
        self.indices = indices
        self.observation_space = gym.spaces.Box(whole.low[indices], whole.high[indices])

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[self.indices]


class Environments:
    """Makes the environments of training and of evaluation.

    Args:
        observed: the observation's numbers that are seen; None: all.
        normalize: by running statistics, which an evaluation takes from training.
    """

    def __init__(
        self, args: argparse.Namespace, observed: list[int] | None, normalize: bool
    ) -> None:
        self._env = args.env
        limit = args.max_episode_steps
        self._kwargs = {"max_episode_steps": limit} if limit else {}
        self._wrapper = {"wrapper_class": SomeNumbers, "wrapper_kwargs": {"indices": observed}}
        if observed is None:
            self._wrapper = {}
        self._normalize = normalize

    def make(self, count: int, seed: int, **normalization: Any) -> VecEnv:
        """Make so many environments in one; `normalization` are arguments of VecNormalize."""
        envs = make_vec_env(
            self._env, n_envs=count, seed=seed, env_kwargs=self._kwargs, **self._wrapper
        )
        return VecNormalize(envs, **normalization) if self._normalize else envs


def build(args: argparse.Namespace) -> tuple[BaseAlgorithm, Environments]:
    """The algorithm with its defaults but for `kwargs`, and what makes its environments."""
    module, name, policy, _ = ALGORITHMS[args.algorithm]
    kwargs = json.loads(args.kwargs)
    # "steps" in the place of a fraction: exploration ends there however long the run is.
    if steps := kwargs.pop("exploration_steps", None):
        kwargs["exploration_fraction"] = steps / args.steps
    makes = Environments(args, kwargs.pop("observed", None), kwargs.pop("normalize", False))
    discount = {"gamma": kwargs["gamma"]} if "gamma" in kwargs else {}
    envs = makes.make(kwargs.pop("n_envs", 1), args.seed, **discount)
    if std := kwargs.pop("noise_std", None):  # of actions scaled to [-1, 1]
        dims = envs.action_space.shape
        kwargs["action_noise"] = NormalActionNoise(np.zeros(dims), np.full(dims, std))
    for each in ("learning_rate", "clip_range"):
        if isinstance(kwargs.get(each), str):
            kwargs[each] = falling(kwargs[each])
    of_policy = kwargs.get("policy_kwargs", {})
    if "activation_fn" in of_policy:
        of_policy["activation_fn"] = getattr(torch.nn, of_policy["activation_fn"])
    algorithm = getattr(importlib.import_module(module), name)
    return algorithm(policy, envs, seed=args.seed, device="cpu", **kwargs), makes


def falling(schedule: str) -> Callable[[float], float]:
    """What "lin_0.001" means: the share of the run that is left, times this."""
    begin = float(schedule.removeprefix("lin_"))
    return lambda left: begin * left


class Evaluations(BaseCallback):
    """Evaluates at an interval and stops at a target."""

    def __init__(self, args: argparse.Namespace, makes: Environments) -> None:
        super().__init__()
        self.every = args.every
        self.episodes = args.episodes
        self.target = args.target
        self.next = args.every
        self.began = time.perf_counter()
        self.evaluation_s = 0.0
        self.best = float("-inf")
        self.evaluations: list[dict[str, float]] = []
        # One each: seeds are ours.
        self.envs = makes.make(args.episodes, EVALUATION_SEED, training=False, norm_reward=False)

    def _on_step(self) -> bool:
        if self.num_timesteps < self.next:
            return True
        self.next += self.every
        began = time.perf_counter()
        sync_envs_normalization(self.training_env, self.envs)
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
    model, makes = build(args)
    callback = Evaluations(args, makes)
    began = time.perf_counter()
    model.learn(args.steps, callback=callback)
    wall_s = time.perf_counter() - began
    package = ALGORITHMS[args.algorithm][-1]
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
