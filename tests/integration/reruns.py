"""Runs whose processes are killed at random, and which are then executed again, bit by bit.

``scripts/reruns 100`` trains as many short runs: DQN, SAC, TD3, by priority, of two sources, each
with kills with `kill -9` at random moments. By default a run is a trainer and a writer of rows,
without what has no part in learning, and takes some seconds; with ``--daemons`` it is a learner
with its actors, of which trainer, gateway or all are killed. Each run is executed again from its
first step on: each state that was saved and each record of scalars must have the same hash.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import killed_runs  # of tests/support
import numpy as np
from daemons import Daemon, Daemons, free_address, wait_for
from killed_runs import KilledRun
from trial import Trial, parser_of

from vedette_services.learner.rerun import Rerun
from vedette_services.status.records import StatusRecordReader, TrainerStatus

STEPS = 700
ENDS_WITHIN_S = 240.0
VICTIMS = ("trainer", "gateway", "learner")
DEMONSTRATIONS = 400

SETTINGS = (
    f"stop.max_opts={STEPS}",
    "stop.target_return=none",
    "agent.hidden_sizes=[24,24]",
    "agent.batch_size=32",
    "learner.warmup_period=100",
    "learner.save_interval=40",
    "learner.keep_checkpoints=2",
    "learner.eval_interval=0",
    "learner.record_agent_info_interval=10",
    "evaluation.end_timeout_s=0",
)


class Case(NamedTuple):
    """A kind of run."""

    env: str
    agent: str
    settings: tuple[str, ...] = ()
    demonstrations: bool = False


BY_PRIORITY = ("replay.prioritized=true", "replay.beta_steps=500")
OVERWRITTEN = ("replay.capacity=300", "replay.keep=50000")
CASES = {
    "dqn": Case("CartPole-v1", "dqn"),
    "sac": Case("Pendulum-v1", "sac"),
    "td3": Case("Pendulum-v1", "td3", OVERWRITTEN),
    "by priority": Case("CartPole-v1", "dqn", (*BY_PRIORITY, *OVERWRITTEN)),
    "two sources": Case("CartPole-v1", "dqn", BY_PRIORITY, demonstrations=True),
    "observations stored once": Case(
        "CartPole-v1", "dqn", ("replay.frame_storage=once", *OVERWRITTEN)
    ),
}


def write_demonstrations(path: Path) -> Path:
    """An exported replay of CartPole's form."""
    rng = np.random.default_rng(0)
    obs = rng.normal(0.0, 0.1, (DEMONSTRATIONS + 1, 4)).astype(np.float32)
    np.savez(
        path,
        obs=obs[:-1],
        next_obs=obs[1:],
        action=rng.integers(0, 2, DEMONSTRATIONS),
        reward=np.ones(DEMONSTRATIONS, np.float32),
        terminated=np.zeros(DEMONSTRATIONS, bool),
        truncated=np.arange(DEMONSTRATIONS) % 50 == 49,
        n_steps=np.ones(DEMONSTRATIONS, np.uint8),
    )
    return path


class KilledLearner:
    """A learner and a manager with one actor."""

    def __init__(self, house: Daemons, case: Case, seed: int) -> None:
        self._house = house
        self.directory = house.place / "run"
        self._address = free_address()
        sources: tuple[str, ...] = ()
        if case.demonstrations:
            data = write_demonstrations(house.place / "demonstrations.npz")
            sources = (f"replay.sources.demos.data={data}", "replay.sources.demos.share=0.3")
        self._asked = (
            *("--env", case.env, "--agent", case.agent, "--out", self.directory),
            *("--bind", self._address, f"seed={seed}", *SETTINGS, *case.settings, *sources),
        )
        self._learner = self._start()
        house.start("manager", "actors", "--learner", self._address, "--count", 1)

    def _start(self) -> Daemon:
        return self._house.start("learner", "learner", *self._asked)

    def train(self, kills: list[tuple[int, str]]) -> None:
        """Train to the end; killed at so many optimization steps each.

        Raises:
            AssertionError: it does not end as it is to.
        """
        for at, victim in kills:
            wait_for(lambda at=at: self._is_beyond(at), "step", ENDS_WITHIN_S)
            if not self._learner.running:
                break
            if victim == "learner":
                self._learner.kill9()
                self._learner = self._start()
            else:
                self._kill(victim)
        code = self._learner.wait(ENDS_WITHIN_S)
        assert code == 0, f"the learner ended with {code}"

    def _kill(self, role: str) -> None:
        """Kill one of its processes, which is started again unless the run ends meanwhile."""
        victims = self._learner.children(role)
        for pid in victims:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        wait_for(
            lambda: not self._learner.running or {*self._learner.children(role)} - {*victims},
            f"new {role}",
        )

    def _is_beyond(self, step: int) -> bool:
        board = self.directory / "live" / "learning.map"
        if not self._learner.running:
            return True
        try:
            return StatusRecordReader(board, TrainerStatus).read().opt_steps >= step
        except (OSError, ValueError):  # it is made anew by each start
            return False


def kills_of(rng: random.Random) -> list[tuple[int, str]]:
    """When, and what."""
    count = rng.randint(1, 3)
    moments = sorted(rng.sample(range(1, STEPS - 60), count))
    return [(at, rng.choice(VICTIMS)) for at in moments]


def train_daemons(place: Path, name: str, seed: int) -> list[tuple[int, str]]:
    """A learner with actors that is killed; returns when, and what of it."""
    kills = kills_of(random.Random(seed))
    place.mkdir()
    with Daemons(place) as house:
        try:
            KilledLearner(house, CASES[name], seed).train(kills)
        except AssertionError:
            print(house.post_mortem())
            raise
    return kills


def train_forks(place: Path, name: str, seed: int) -> list[tuple[str, int]]:
    """A trainer and a writer that are killed; returns what, and the newest checkpoint then."""
    run = KilledRun(place / "run", killed_runs.CASES[name], random.Random(seed))
    run.train(kills=1 + seed % 4)
    return run.kills


def execute_many(trial: Trial, count: int, first_seed: int, *, daemons: bool) -> None:
    """Train and execute runs of all kinds in turn."""
    equal = 0
    names = [*CASES] if daemons else [*killed_runs.CASES]
    for seed in range(first_seed, first_seed + count):
        name = names[seed % len(names)]
        place = trial.place / str(seed)
        began = time.monotonic()
        kills = train_daemons(place, name, seed) if daemons else train_forks(place, name, seed)
        with Rerun.open(place / "run") as again:
            trial.check(again.span.begin == 0, f"seed {seed}, {name}: {again.span}")
            result = again.execute(again.span.cut(None, None))
        said = "; ".join(result.lines())
        trial.say(f"{seed} {name}, {kills}: {said} ({time.monotonic() - began:.0f} s)")
        trial.check(result.equal, f"seed {seed}, {name}: {said}")
        equal += result.equal
    print(f"hashes are equal at {equal} of {count} runs")


def main() -> int:
    """The command; 0 where all are equal."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = parser_of("reruns", __doc__)
    parser.add_argument("count", nargs="?", type=int, default=10, help="how many runs [10]")
    parser.add_argument("--daemons", action="store_true", help="whole learners, with actors")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)  # of starts without a checkpoint
    with Trial("reruns", asked.out) as trial:
        execute_many(trial, asked.count, asked.seed, daemons=asked.daemons)
        return trial.verdict()


if __name__ == "__main__":
    sys.exit(main())
