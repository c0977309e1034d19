"""Sample Factory: two rollout workers with 16 environments each and an inference worker.

Its asynchronous sampler by itself (`SyncSamplingAPI`, as in its own example): no learner runs, so
learning costs nothing. Its actor-critic is an MLP of 2 x 64 on the CPU and draws its actions. It
has no replay; a step counts when this program has its copy of the trajectory. All else is as it
comes, but that a worker's environments are not split in two halves, which is slower on two cores.

`python scripts/bench/peer_programs/collect_sample_factory.py ENV SECONDS`
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
from typing import Any

import gymnasium
from collecting import steps_per_s
from sample_factory.algo.sampling.simplified_sampling_api import SyncSamplingAPI
from sample_factory.algo.utils.env_info import obtain_env_info_in_a_separate_process
from sample_factory.algo.utils.rl_utils import samples_per_trajectory
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.utils.typing import Config
from sample_factory.utils.utils import log

ENVS = 16
WORKERS = 2
TRAJECTORY_S = 30.0
STOP_S = 10.0
LIMIT_S = 120


def make_env(
    name: str, cfg: Config, env_config: Any, render_mode: str | None = None
) -> gymnasium.Env:
    return gymnasium.make(name, render_mode=render_mode)


def settings(env: str, folder: str) -> Config:
    words = ["--env", env, "--train_dir", folder, "--device", "cpu"]
    words += ["--num_workers", str(WORKERS), "--num_envs_per_worker", str(ENVS)]
    words += ["--worker_num_splits", "1"]
    words += ["--default_niceness", str(os.nice(0))]  # else its processes have one of their own
    words += ["--use_rnn", "False", "--encoder_mlp_layers", "64", "64"]
    parser, _ = parse_sf_args(words)
    return parse_full_cfg(parser, words)


def main() -> None:
    env = sys.argv[1]
    seconds = float(sys.argv[2])
    signal.alarm(LIMIT_S + int(seconds))  # its start and its stop wait without a bound
    log.setLevel(logging.WARNING)
    register_env(env, make_env)
    with tempfile.TemporaryDirectory() as folder:
        cfg = settings(env, folder)
        sampler = SyncSamplingAPI(cfg, obtain_env_info_in_a_separate_process(cfg))

        def collect() -> int:
            return int(samples_per_trajectory(sampler.traj_queue.get(timeout=TRAJECTORY_S)))

        try:
            sampler.start()
            print(json.dumps({"per_s": steps_per_s(collect, seconds)}), flush=True)
        finally:
            sampler.stop()
            for process in multiprocessing.active_children():
                process.join(STOP_S)
                process.kill()


if __name__ == "__main__":
    main()
