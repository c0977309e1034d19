"""Runs whose processes are killed at random, and which are then executed again, bit by bit.

``scripts/reruns 100`` trains as many short runs: DQN, SAC, TD3, by priority, of two sources, each
with one to three kills with `kill -9` of the trainer, the gateway or the whole learner at random
moments. Each run is executed again from its first step on: each state that was saved and each
record of scalars must have the same hash.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from daemons import Daemon, Daemons, free_address, kill_child, wait_for
from trial import Trial, parser_of

from vedette_services.learner.rerun import Rerun, Result
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


class KilledRun:
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
                kill_child(self._learner, victim)
        code = self._learner.wait(ENDS_WITHIN_S)
        assert code == 0, f"the learner ended with {code}"

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


def train_and_execute(place: Path, case: Case, seed: int) -> tuple[list[tuple[int, str]], Result]:
    """A run that is killed, executed again from its first step to its last."""
    place.mkdir()
    kills = kills_of(random.Random(seed))
    with Daemons(place) as house:
        try:
            KilledRun(house, case, seed).train(kills)
        except AssertionError:
            print(house.post_mortem())
            raise
    with Rerun.open(place / "run") as again:
        assert (again.span.begin, again.span.end) == (0, STEPS), f"{again.span}"
        return kills, again.execute(again.span.cut(None, None))


def execute_many(trial: Trial, count: int, first_seed: int) -> None:
    """Runs of all kinds in turn."""
    equal = 0
    names = [*CASES]
    for seed in range(first_seed, first_seed + count):
        name = names[seed % len(names)]
        began = time.monotonic()
        kills, result = train_and_execute(trial.place / str(seed), CASES[name], seed)
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
    asked = parser.parse_args()
    with Trial("reruns", asked.out) as trial:
        execute_many(trial, asked.count, asked.seed)
        return trial.verdict()


if __name__ == "__main__":
    sys.exit(main())
