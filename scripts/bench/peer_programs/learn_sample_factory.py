"""Sample Factory's APPO, collecting and learning at once: two rollout workers with 16 environments
each, an inference worker and a learner, each a process.

Runs of 32 steps, blocks of 1,024 steps, minibatches of 256, PASSES passes over each block. Its
actor-critic is an MLP of 2 x 64 with tanh on the CPU. A step counts when it has been learned from.
All else is as it comes, but that a worker's environments are not split in two halves, which is
slower on two cores.

`python scripts/bench/peer_programs/learn_sample_factory.py PASSES SECONDS`
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import signal
import sys
import tempfile
import time

import psutil
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sample_factory.utils.utils import log
from train_sample_factory import MakeEnv, settings

ENV = "CartPole-v1"
BLOCK = 1024
BATCH = 256
WARM_S = 3.0
LIMIT_S = 220


class Clock(AlgoObserver):
    """Counts steps between the warm-up and the end, and leaves the program then: Sample Factory's
    own stop takes long where other programs run."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._warm = self._began = self._spent = 0.0
        self._before = 0
        self.figures: dict[str, float] = {}

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        now = time.monotonic()
        steps = training_iteration_since_resume * BLOCK
        if not self._warm:  # the first block
            self._warm = now + WARM_S
        elif not self._began:
            if now >= self._warm:
                self._began = now
                self._before = steps
                self._spent = processor_s()
        elif now >= self._began + self._seconds:
            steps -= self._before
            self.figures["per_s"] = steps / (now - self._began)
            self.figures["per_processor_s"] = steps / (processor_s() - self._spent)
            raise SystemExit


def processor_s() -> float:
    """Processor seconds of this process and of those that it started."""
    ours = psutil.Process()
    times = [process.cpu_times() for process in [ours, *ours.children(recursive=True)]]
    return sum(each.user + each.system for each in times)


def main() -> None:
    passes = int(sys.argv[1])
    seconds = float(sys.argv[2])
    signal.alarm(LIMIT_S + int(seconds))  # its start waits without a bound
    log.setLevel(logging.WARNING)
    register_env(ENV, MakeEnv(limit=0))
    numbers = {
        "num_workers": 2,
        "num_envs_per_worker": 16,
        "worker_num_splits": 1,
        "rollout": 32,
        "batch_size": BATCH,
        "num_batches_per_epoch": BLOCK // BATCH,
        "num_epochs": passes,
        "use_rnn": False,
        "encoder_mlp_layers": [64, 64],
        "nonlinearity": "tanh",
    }
    asked = argparse.Namespace(env=ENV, seed=0, steps=10**9, kwargs=json.dumps(numbers))
    clock = Clock(seconds)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        _, runner = make_runner(settings(asked, folder))
        runner.register_observer(clock)
        runner.init()
        try:
            runner.run()
        except SystemExit:
            print(json.dumps(clock.figures), flush=True)
        finally:
            for process in multiprocessing.active_children():
                process.kill()


if __name__ == "__main__":
    main()
