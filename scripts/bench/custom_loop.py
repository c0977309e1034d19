"""`vedette.Actor` in a custom loop beside an actor process, and in real time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import vedette
from bench.daemons import (
    ACTOR,
    NOT_TRAINING,
    Measured,
    ask,
    learner_of,
    measured,
    run_actors,
    running,
)
from bench.measuring import (
    process_ids,
    ratio_of_rounds,
    reserve_core,
    summarize_rounds,
)
from vedette.local.daemons import daemon_command, free_port
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import make_group
from vedette_services.config.loading import load_config
from vedette_services.errors import NoAnswerError
from vedette_services.host.processes import ONE_THREAD, python_module
from vedette_services.status.client import StatusClient

CUSTOM_LOOP = "bench.custom_loop"
MANAGER = "actors"
"""A word of its command line; a custom loop has none."""

STOP = signal.SIGSTOP
GO = signal.SIGCONT
_WARM_S = 1.5
_SETTLE_S = 0.3
_START_S = 60.0
_ROBOT = Path(__file__).parents[2] / "docs" / "examples" / "robot.py"
_SAID = re.compile(r"(\d+) steps, (\d+) periods missed, longest act ([\d.]+) ms, (\d+) samples")


@dataclass(frozen=True, slots=True)
class CustomLoopBench:
    """Measures an actor of several environments, as a process and in a custom loop, in turn on
    one core (the other one stands still), with the learner and the process's manager on the others;
    its processor time counts.

    Args:
        env: stepped by the same code in both.
        envs: how many.
        rows: of a batch.
        seconds: of each in a round: short, as a machine's speed changes.
        rounds: each measures both.
    """

    env: str = "CartPole-v1"
    envs: int = 8
    rows: int = 64
    seconds: float = 1.0
    rounds: int = 30

    def run(self) -> dict[str, Any]:
        """Measure in turn: steps/s, and steps for a second of processor time."""
        config = load_config(
            env=self.env,
            settings=[
                "preset=none",
                "agent.hidden_sizes=[64,64]",
                f"actors.envs_per_actor={self.envs}",
                f"actors.n_buffer={self.rows}",
                "env.vectorization=loop",
                "env.stepping=serial",
                "replay.capacity=1_000_000",
                *NOT_TRAINING,
                "learner.eval_interval=0",
            ],
        ).config
        measured_by_kind: dict[str, list[Any]] = {"process": [], "custom": []}
        with reserve_core() as core, learner_of(config) as (address, asker):
            alike = [f"{name}={value}" for name, value in ONE_THREAD.items()]  # an actor's, too
            loop = [
                "env",
                *alike,
                *python_module(CUSTOM_LOOP, str(address), self.env, str(self.envs)),
            ]
            with run_actors(address, 1):
                _await_samples(asker, ACTOR)
                _keep_acting_on(core, ACTOR)
                with signalled(ACTOR, STOP, GO), running([loop]):
                    time.sleep(_WARM_S)  # what is under way comes in
                    _await_samples(asker, CUSTOM_LOOP)
                    _keep_acting_on(core, CUSTOM_LOOP)
                    for _ in range(self.rounds):
                        measured_by_kind["custom"].append(self._measure(asker, CUSTOM_LOOP))
                        with signalled(CUSTOM_LOOP, STOP, GO), signalled(ACTOR, GO, STOP):
                            measured_by_kind["process"].append(self._measure(asker, ACTOR))
        rates = {kind: [one.per_s for one in rounds] for kind, rounds in measured_by_kind.items()}
        costs = {
            kind: [one.rows / one.processor_s for one in rounds]
            for kind, rounds in measured_by_kind.items()
        }
        return {
            "env": self.env,
            "envs": self.envs,
            "rows": self.rows,
            **{f"{kind}_steps_per_s": summarize_rounds(rounds) for kind, rounds in rates.items()},
            "ratio": ratio_of_rounds(rates["custom"], rates["process"]),
            **{
                f"{kind}_steps_per_processor_s": summarize_rounds(rounds)
                for kind, rounds in costs.items()
            },
            "processor_ratio": ratio_of_rounds(costs["custom"], costs["process"]),
        }

    def _measure(self, asker: StatusClient, module: str) -> Measured:
        return measured(asker, _SETTLE_S, self.seconds, [module, MANAGER])


def _await_samples(asker: StatusClient, module: str) -> None:
    """Wait until what has just been started plays."""
    before = ask(asker).samples.inserted
    deadline = time.monotonic() + _START_S
    while ask(asker).samples.inserted == before:
        if time.monotonic() > deadline:
            raise NoAnswerError(f"{module} of this measurement", _START_S)
        time.sleep(0.1)


def _keep_acting_on(core: int | None, module: str) -> None:
    """Move the main threads to a core; the threads beside them stay off it, as a manager does."""
    if core is not None:
        for process in process_ids(module):
            os.sched_setaffinity(process, {core})


def _signal(module: str, number: signal.Signals) -> None:
    for process in process_ids(module):
        os.kill(process, number)


@contextmanager
def signalled(module: str, begin: signal.Signals, end: signal.Signals) -> Iterator[None]:
    """Send our descendants that run `python -m MODULE` one signal now, and one afterwards."""
    _signal(module, begin)
    try:
        yield
    finally:
        _signal(module, end)


@dataclass(frozen=True, slots=True)
class RealTimeBench:
    """Runs the robot of the examples at 50 Hz beside a learner that is killed and comes back.

    Args:
        kills: of the learner, with `kill -9`.
        seconds: before, between and after them.
        away_s: until the learner is started again.
    """

    kills: int = 2
    seconds: float = 15.0
    away_s: float = 5.0

    def run(self) -> dict[str, Any]:
        """Measure: periods missed, the longest `act`, samples dropped."""
        address = f"127.0.0.1:{free_port()}"
        total_s = self.seconds * (self.kills + 1)
        total_s += self.away_s * self.kills
        with tempfile.TemporaryDirectory(prefix="vedette-bench-") as place:
            learner = daemon_command(
                "learner",
                "--env",
                "Pendulum-v1",
                "--bind",
                address,
                "--out",
                f"{place}/run",
                "learner.warmup_period=200",
                "stop.target_return=none",
            )
            robot = [sys.executable, str(_ROBOT), address, "--seconds", str(total_s)]
            process = _started(learner)
            with subprocess.Popen(robot, stdout=subprocess.PIPE, text=True) as playing:
                for _ in range(self.kills):
                    time.sleep(self.seconds)
                    process.kill()
                    process.wait()
                    time.sleep(self.away_s)
                    process = _started(learner)
                said, _ = playing.communicate(timeout=total_s + 60.0)
            process.terminate()
            process.wait(60.0)
        match = _SAID.search(said)
        assert match is not None, said
        steps, missed, longest_ms, dropped = map(float, match.groups())
        return {
            "kills": self.kills,
            "steps": int(steps),
            "missed": int(missed),
            "longest_act_ms": longest_ms,
            "dropped": int(dropped),
        }


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def play(learner: str, env: str, envs: int) -> None:
    """Play until this process is killed: the simulator of `CustomLoopBench`."""
    config = EnvConfig(id=env, vectorization="loop", stepping="serial")
    group = make_group(config, envs)
    obs = group.layout.empty(envs)
    everywhere = range(envs)
    group.reset(everywhere, list(everywhere), obs, everywhere)
    with vedette.Actor(learner, envs=envs) as actor:
        actor.begin(obs["obs"])
        while actor.running:
            ended = group.step(actor.act(), obs)
            actor.observe(group.reward, obs["obs"], group.terminated, group.truncated)
            if ended:
                done = group.terminated | group.truncated
                rows = np.flatnonzero(done).tolist()
                group.reset(rows, [None] * len(rows), obs, rows)
                actor.begin(obs["obs"], done)


if __name__ == "__main__":
    play(sys.argv[1], sys.argv[2], int(sys.argv[3]))
