"""Optimization steps a second while actors push, beside a hand-written loop, in turn."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import Any

from bench.daemons import TRAINER, ask, learner_of, run_actors
from bench.measuring import (
    assign_core,
    processor_s,
    ratio_of_rounds,
    reserve_core,
    summarize_rounds,
    usable_cores,
)
from vedette_services.config.loading import load_config
from vedette_services.host.processes import python_module
from vedette_services.status.client import StatusClient

_WARM_S = 2.0
_FIRST_OPT_S = 60.0


@dataclass(frozen=True, slots=True)
class LearnerBench:
    """Measures DQN with an MLP of two hidden layers on CartPole-v1.

    Args:
        batch_size: samples of an optimization step.
        hidden: units of each hidden layer.
        double: Double DQN, which takes one more forward pass.
        actors: actor processes that push at full speed meanwhile. The trainer has a core of its
            own where there are two; the actors share the others with the gateway.
        seconds: of a round.
        rounds: each measures both; the ratio is taken within a round.
    """

    batch_size: int = 256
    hidden: int = 256
    double: bool = True
    actors: int = 1
    seconds: float = 5.0
    rounds: int = 3

    def run(self) -> dict[str, Any]:
        """Measure both in turn."""
        ours, bound, cost, bound_cost = [], [], [], []
        for _ in range(self.rounds):
            rate, processor_ms = self._handwritten()
            bound.append(rate)
            bound_cost.append(processor_ms)
            rate, processor_ms = self._ours()
            ours.append(rate)
            cost.append(processor_ms)
        return {
            "batch_size": self.batch_size,
            "hidden": self.hidden,
            "double": self.double,
            "actors": self.actors,
            "own_core": len(usable_cores()) > 1,
            "opt_steps_per_s": summarize_rounds(ours),
            "handwritten_opt_steps_per_s": summarize_rounds(bound),
            "ratio": ratio_of_rounds(ours, bound),
            "processor_ms_per_opt": summarize_rounds(cost),
            "handwritten_processor_ms_per_opt": summarize_rounds(bound_cost),
            "processor_ratio": ratio_of_rounds(cost, bound_cost),
        }

    def _handwritten(self) -> tuple[float, float]:
        """Measure optimization steps per second, and processor milliseconds of one."""
        command = python_module(
            "bench.handwritten",
            *map(str, (self.batch_size, self.hidden, self.seconds)),
            "double" if self.double else "single",
        )
        timeout_s = self.seconds + 120
        done = subprocess.run(command, check=True, capture_output=True, timeout=timeout_s)
        rate, processor_s = map(float, done.stdout.split())
        return rate, 1e3 * processor_s

    def _ours(self) -> tuple[float, float]:
        """Measure the same of the trainer process."""
        config = load_config(
            env="CartPole-v1",
            agent="dqn",
            settings=[
                "preset=none",
                f"agent.batch_size={self.batch_size}",
                f"agent.double={self.double}".lower(),
                f"agent.hidden_sizes=[{self.hidden},{self.hidden}]",
                "agent.n_step=1",
                "agent.target_update_interval=100",
                "actors.envs_per_actor=16",
                "actors.n_buffer=256",
                "replay.capacity=100000",
                "replay.samples_per_insert=0",
                "learner.sync_interval=50",
                "learner.eval_interval=0",
                "learner.save_interval=0",
                "stop.max_seconds=600",
            ],
        ).config
        with (
            reserve_core() as core,
            learner_of(config) as (address, asker),
            run_actors(address, self.actors),
        ):
            return self._opts_per_s(asker, core)

    def _opts_per_s(self, asker: StatusClient, core: int | None) -> tuple[float, float]:
        deadline = time.monotonic() + _FIRST_OPT_S
        while not ask(asker).opt_steps and time.monotonic() < deadline:
            time.sleep(0.1)
        assign_core(core, TRAINER)
        time.sleep(_WARM_S)
        before = ask(asker).opt_steps or 0
        began = time.monotonic()
        spent = -processor_s(TRAINER)
        time.sleep(self.seconds)
        after = ask(asker).opt_steps or 0
        ended = time.monotonic()
        spent += processor_s(TRAINER)
        return (after - before) / (ended - began), 1e3 * spent / max(1, after - before)
