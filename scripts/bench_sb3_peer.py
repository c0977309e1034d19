"""Stable-Baselines3's DQN on CartPole-v1, tuned as in rl-baselines3-zoo: the peer we time against.

Run by `scripts/bench_sb3` in an environment of its own. Prints one JSON line: whether and when a
greedy evaluation of 20 episodes first returned 475 on average; wall time without evaluations too.
"""

import argparse
import json
import time

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

TARGET = 475.0
EPISODES = 20


class UntilSolved(BaseCallback):
    """Evaluates every `every` environment steps and stops at the target."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.next = every, every
        self.evaluation_s = 0.0
        self.best = float("-inf")
        self.envs = make_vec_env("CartPole-v1", n_envs=EPISODES, seed=10_000)

    def _on_step(self) -> bool:
        if self.num_timesteps < self.next:
            return True
        self.next += self.every
        began = time.perf_counter()
        mean, _ = evaluate_policy(self.model, self.envs, n_eval_episodes=EPISODES)
        self.evaluation_s += time.perf_counter() - began
        self.best = max(self.best, float(mean))
        return self.best < TARGET


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=2048, help="environment steps")
    parser.add_argument("--max-steps", type=int, default=150_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    # rl-baselines3-zoo, hyperparams/dqn.yml, CartPole-v1
    model = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=1, seed=args.seed),
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=8000 / args.max_steps,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=args.seed,
        device="cpu",
    )
    callback = UntilSolved(args.every)
    began = time.perf_counter()
    model.learn(args.max_steps, callback=callback)
    wall_s = time.perf_counter() - began
    print(
        json.dumps(
            {
                "what": "stable-baselines3",
                "seed": args.seed,
                "solved": callback.best >= TARGET,
                "wall_s": round(wall_s, 1),
                "wall_without_evaluation_s": round(wall_s - callback.evaluation_s, 1),
                "env_steps": model.num_timesteps,
                "opt_steps": model._n_updates,
            }
        )
    )


if __name__ == "__main__":
    main()
