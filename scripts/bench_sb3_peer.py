"""Stable-Baselines3 on one environment, tuned as in rl-baselines3-zoo: the peer we time against.

Run by `scripts/bench_sb3` and `scripts/curves` in an environment of its own. Prints one JSON line:
whether and when a greedy evaluation of 20 episodes first returned the target on average; wall time
without evaluations too; and every evaluation.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

EPISODES = 20


@dataclass(frozen=True)
class Peer:
    """How one environment is solved there.

    Args:
        build: makes the algorithm from a seed and the most steps.
        target: the return that counts as solved and ends it.
        every: environment steps between two evaluations.
        max_steps: environment steps after which it gives up.
    """

    build: Callable[[int, int], BaseAlgorithm]
    target: float
    every: int
    max_steps: int


def dqn_on_cartpole(seed: int, max_steps: int) -> BaseAlgorithm:
    """rl-baselines3-zoo, hyperparams/dqn.yml, CartPole-v1."""
    return DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=1, seed=seed),
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=8000 / max_steps,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=seed,
        device="cpu",
    )


def sac_on_pendulum(seed: int, max_steps: int) -> BaseAlgorithm:
    """rl-baselines3-zoo, hyperparams/sac.yml, Pendulum-v1: its defaults but for the step size."""
    envs = make_vec_env("Pendulum-v1", n_envs=1, seed=seed)
    return SAC("MlpPolicy", envs, learning_rate=1e-3, seed=seed, device="cpu")


def sac_on_hopper(seed: int, max_steps: int) -> BaseAlgorithm:
    """rl-baselines3-zoo, hyperparams/sac.yml, Hopper: its defaults but for the warm-up."""
    envs = make_vec_env("Hopper-v5", n_envs=1, seed=seed)
    return SAC("MlpPolicy", envs, learning_starts=10_000, seed=seed, device="cpu")


PEERS = {
    "CartPole-v1": Peer(dqn_on_cartpole, 475.0, 2048, 150_000),
    "Pendulum-v1": Peer(sac_on_pendulum, -180.0, 500, 20_000),
    "Hopper-v5": Peer(sac_on_hopper, float("inf"), 5000, 1_000_000),
}


class UntilSolved(BaseCallback):
    """Evaluates at the peer's interval and stops at its target."""

    def __init__(self, env: str, peer: Peer) -> None:
        super().__init__()
        self.peer, self.next = peer, peer.every
        self.began = time.perf_counter()
        self.evaluation_s = 0.0
        self.best = float("-inf")
        self.evaluations: list[dict[str, float]] = []
        self.envs = make_vec_env(env, n_envs=EPISODES, seed=10_000)

    def _on_step(self) -> bool:
        if self.num_timesteps < self.next:
            return True
        self.next += self.peer.every
        began = time.perf_counter()
        mean, _ = evaluate_policy(self.model, self.envs, n_eval_episodes=EPISODES)
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
        return self.best < self.peer.target


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--env", choices=PEERS, default="CartPole-v1")
    parser.add_argument("--max-steps", type=int, default=0, help="in the place of the peer's own")
    parser.add_argument("--target", type=float, help="likewise; inf goes on to the last step")
    args = parser.parse_args()
    torch.set_num_threads(1)
    peer = PEERS[args.env]
    if args.max_steps:
        peer = replace(peer, max_steps=args.max_steps)
    if args.target is not None:
        peer = replace(peer, target=args.target)
    model = peer.build(args.seed, peer.max_steps)
    callback = UntilSolved(args.env, peer)
    began = time.perf_counter()
    model.learn(peer.max_steps, callback=callback)
    wall_s = time.perf_counter() - began
    print(
        json.dumps(
            {
                "what": "stable-baselines3",
                "seed": args.seed,
                "solved": callback.best >= peer.target,
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
