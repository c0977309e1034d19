"""RLlib: DQN's two env runners with 16 environments each; their episodes come to the driver.

`python scripts/bench/peer_programs/collect_rllib.py ENV SECONDS`
"""

from __future__ import annotations

import json
import sys

import ray
from collecting import steps_per_s
from ray.rllib.algorithms.dqn import DQNConfig

STEPS = 512


def main() -> None:
    env = sys.argv[1]
    seconds = float(sys.argv[2])
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    algorithm = (
        DQNConfig()
        .environment(env)
        .env_runners(num_env_runners=2, num_envs_per_env_runner=16)
        .rl_module(model_config={"fcnet_hiddens": [64, 64]})
        .build_algo()
    )

    def collect() -> int:
        runs = algorithm.env_runner_group.foreach_env_runner(
            lambda runner: runner.sample(num_timesteps=STEPS), local_env_runner=False
        )
        return sum(len(episode) for episodes in runs for episode in episodes)

    print(json.dumps({"per_s": steps_per_s(collect, seconds)}), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
