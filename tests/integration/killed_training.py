"""A training whose learner is killed five times, beside an undisturbed one, seed by seed.

``scripts/killed_training 24`` trains each seed once in peace and once with `kill -9` of the whole
learner at five random moments. It compares the steps behind the first model that solves the task,
the mean return of all evaluations, and how many trainings fell again after they had solved it.
``--task`` says what is trained: `dqn`, CartPole-v1 by its preset, or `appo-memory`, an on-policy
agent with memory, whose queue and recurrent states have to come back as well. One seed differs
from itself by a factor of two between two runs in peace, since actors are not in lock step: so the
ratio comes with an interval, which says how far these seeds tell it.

Evaluated are checkpoints, after the training. Evaluations beside it would not be the same in both:
those that a kill cuts off are missing, and with five kills within seconds that is every early one.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
from acted_rows import acted_rows
from daemons import Daemons, free_address, wait_for
from numpy.typing import NDArray
from trial import Trial, parser_of

from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.run.policy_evaluation import evaluate_run
from vedette_services.status.records import StatusRecordReader, TrainerStatus

KILLS = 5
EPISODES = 20
RATIO_MAX = 1.3
RETURN_MIN = 0.8
"""Of the mean return in peace, which seeds tell far more sharply than the steps to a solution."""
MODELS_MIN = 20
"""Of those that rows are of: with fewer nothing is told by their rows."""
DIFFERENCE_MAX = 1e-5
"""Of a log-probability or a number remembered: float32, and another order of its sums."""
ENDS_WITHIN_S = 600.0
UP_WITHIN_S = 120.0

Steps = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained.

    Args:
        plays: environment, agent and its settings, as arguments of `vedette learner`.
        steps: optimization steps of a training; one that has not solved it by then counts with
            these.
        killed_by: optimization steps by which the last kill has come.
        every: optimization steps from one evaluation to the next.
        solved: the mean return that solves it.
        fallen: a mean return so low, after it was solved, is a fall.
        remembers: what actors say of its rows is computed again after the kills.
    """

    plays: tuple[str, ...]
    steps: int
    killed_by: int
    every: int
    solved: float
    fallen: float
    remembers: bool = False


TASKS = {
    "dqn": Task(
        ("--env", "CartPole-v1", "--agent", "dqn"),
        steps=10_000,
        killed_by=2_000,
        every=500,
        solved=475.0,
        fallen=250.0,
    ),
    "appo-memory": Task(
        (
            *("--env", "vedette_rl.testing:RepeatFirst", "--agent", "appo"),
            *("env.kwargs.steps=10", "replay.sequence=32", "replay.block=1024"),
            *("agent.memory=gru", "agent.memory_size=32", "agent.hidden_sizes=[32]"),
            *("agent.learning_rate=0.003", "agent.entropy_coef=0.01", "learner.save_interval=32"),
        ),
        steps=1_024,
        killed_by=800,
        every=64,
        solved=1.0,
        fallen=0.75,
        remembers=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Trained:
    """How one training went.

    Args:
        task: what was trained.
        evaluations: optimization steps behind each checkpoint that was evaluated, and its mean
            return.
        again: steps that were done twice, because a kill came before their checkpoint.
    """

    task: Task
    evaluations: tuple[tuple[int, float], ...]
    again: int

    @property
    def solved_after(self) -> int:
        """Optimization steps behind the first model that solves it."""
        solved = (steps for steps, found in self.evaluations if found >= self.task.solved)
        return next(solved, self.task.steps)

    @property
    def fell(self) -> tuple[tuple[int, float], ...]:
        """The evaluations after the first solved one that are a fall: their steps and returns."""
        return tuple(
            (steps, found)
            for steps, found in self.evaluations
            if steps > self.solved_after and found <= self.task.fallen
        )

    @property
    def mean_return(self) -> float:
        """Of all evaluations."""
        return mean(found for _, found in self.evaluations)


class Training:
    """A learner and a manager with one actor, as `vedette run` would start them."""

    def __init__(self, house: Daemons, task: Task, seed: int) -> None:
        self._house = house
        self._task = task
        self._seed = seed
        self._run = house.place / "run"
        self._address = free_address()
        self._start()
        allowed = ("--allow-import", "vedette_rl")  # where its tasks are
        house.start("manager", "actors", "--learner", self._address, "--count", 1, *allowed)

    def _start(self) -> None:
        self._learner = self._house.start(
            "learner",
            "learner",
            *self._task.plays,
            "--bind",
            self._address,
            "--out",
            self._run,
            f"seed={self._seed}",
            f"stop.max_opts={self._task.steps}",
            "stop.target_return=none",
            "learner.eval_interval=0",
            f"learner.keep_checkpoints={self._task.steps}",
        )

    def train(self, kills: list[int]) -> Trained:
        """Train to the last step, killed at so many optimization steps each."""
        again = 0
        for number, at in enumerate(kills):
            wait_for(lambda at=at: self._steps() >= at, "step", ENDS_WITHIN_S)
            self._learner.kill9()
            saved = Checkpoints(self._run / "checkpoints", keep=1).latest()
            again += self._steps() - (int(saved.name) if saved else 0)
            self._start()
            wait_for(lambda n=number: self._board().epoch >= n + 2, "trainer", UP_WITHIN_S)
        code = self._learner.wait(ENDS_WITHIN_S)
        assert code == 0, f"the learner ended with {code}"
        summary = json.loads((self._run / "summary.json").read_text())
        assert summary["exit_reason"] == "max_opts", summary["exit_reason"]
        assert summary["samples"]["lost"] == 0, f"{summary['samples']}"
        return Trained(self._task, tuple(self._evaluations()), again)

    def _evaluations(self) -> Iterator[tuple[int, float]]:
        """Play the first checkpoint from each due step on, each once: its steps and return."""
        saved = [int(path.name) for path in Checkpoints(self._run / "checkpoints", keep=1).list()]
        all_due = range(self._task.every, self._task.steps + 1, self._task.every)
        firsts = (next(steps for steps in saved if steps >= due) for due in all_due)
        for steps in dict.fromkeys(firsts):  # a kill may leave one for two of them
            found, _ = evaluate_run(
                self._run, episodes=EPISODES, seed=None, checkpoint=str(steps), video=None
            )
            yield steps, found.return_mean

    def _steps(self) -> int:
        return self._board().opt_steps

    def _board(self) -> TrainerStatus:
        """The trainer's last status; the file is another one after each start."""
        return StatusRecordReader(self._run / "live" / "learning.map", TrainerStatus).read()


def train(place: Path, task: Task, seed: int, kills: list[int]) -> Trained:
    """One training in a folder of its own."""
    place.mkdir()
    with Daemons(place) as house:
        return Training(house, task, seed).train(kills)


def compare(trial: Trial, task: Task, seeds: int, first: int) -> None:
    """Every seed in peace and killed, and the ratio of the means of their steps to a solution.

    It fails where the seeds show that the ratio is over `RATIO_MAX`, with all of its interval, and
    where the curves differ: few seeds are over it by chance.
    """
    peace, killed = [], []
    for seed in range(first, first + seeds):
        kills = sorted(random.Random(seed).sample(range(1, task.killed_by), KILLS))
        peace.append(train(trial.place / f"peace-{seed}", task, seed, []))
        killed.append(train(trial.place / f"killed-{seed}", task, seed, kills))
        trial.say(
            f"seed {seed}: in peace {_said(peace[-1])}; killed at {kills} {_said(killed[-1])}, "
            f"{killed[-1].again} steps done again"
        )
        if task.remembers:
            check_rows(trial, trial.place / f"killed-{seed}" / "run")
    theirs, ours = (np.array([one.solved_after for one in found]) for found in (peace, killed))
    ratio, least, most = ratio_of_means(ours, theirs)
    returns = [mean(one.mean_return for one in found) for found in (peace, killed)]
    print(
        f"means of {seeds} seeds: solved after {theirs.mean():.0f} steps in peace, "
        f"{ours.mean():.0f} with kills: {ratio:.2f} times as many, with a probability of 90 % "
        f"{least:.2f} to {most:.2f} times; mean return over {task.steps:,} steps "
        f"{returns[0]:.4g} in peace, {returns[1]:.4g} with kills; "
        f"{sum(bool(one.fell) for one in peace)} fell after they had solved it in peace, "
        f"{sum(bool(one.fell) for one in killed)} with kills"
    )
    trial.check(returns[1] >= RETURN_MIN * returns[0], f"a mean return of {returns[1]:.4g}")
    trial.check(least <= RATIO_MAX, f"at least {least:.2f} times the steps, not {RATIO_MAX}")


def check_rows(trial: Trial, run: Path) -> None:
    """No kill costs a row of those that were sent, or changes what actors say of it."""
    found = acted_rows(run)
    trial.say(str(found))
    trial.check(found.models >= MODELS_MIN, f"only {found.models} models could be computed again")
    trial.check(found.missing == 0, f"{found.missing} rows are missing")
    trial.check(found.remembered == 0.0, "something is remembered where an episode begins")
    trial.check(
        max(found.log_prob, found.memory) <= DIFFERENCE_MAX, f"actors said otherwise: {found}"
    )


def ratio_of_means(ours: Steps, theirs: Steps) -> tuple[float, float, float]:
    """The ratio of two means over the same seeds, and the ends of its 90 % interval (bootstrap)."""
    drawn = np.random.default_rng(0).integers(len(ours), size=(10_000, len(ours)))
    ratios = ours[drawn].mean(axis=1) / theirs[drawn].mean(axis=1)
    least, most = np.quantile(ratios, (0.05, 0.95))
    return float(ours.mean() / theirs.mean()), float(least), float(most)


def _said(found: Trained) -> str:
    fell = "".join(f", fell to {value:.4g} at {steps:,}" for steps, value in found.fell)
    return f"solved after {found.solved_after:,} steps, mean return {found.mean_return:.4g}{fell}"


def main() -> int:
    """The command; 0 where kills cost little enough."""
    parser = parser_of("killed_training", __doc__)
    parser.add_argument("seeds", nargs="?", type=int, default=8, help="how many [8]")
    parser.add_argument("--task", choices=TASKS, default="dqn", help="what is trained [dqn]")
    asked = parser.parse_args()
    with Trial("killed-training", asked.out) as trial:
        compare(trial, TASKS[asked.task], asked.seeds, asked.seed)
        return trial.verdict()


if __name__ == "__main__":
    sys.exit(main())
