"""Simulates how often a run ends with a model below its target, by `evaluation.confirm`.

    .venv/bin/python scripts/confirmations.py [--runs 1000] [--seed 0]

The learning curve: the true mean return of the evaluated models rises in a straight line from
`--begin` to the target of 475 within `--rise` evaluations, and goes on so up to `--end`. Each model
is off that line by a deviation of `--models`, since single optimization steps change a policy; the
returns of its episodes deviate from its own mean by `--episodes`. Evaluations are of 20 episodes. A
run ends as the learner ends it, by the class that the learner uses.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vedette_services.learner.confirmation import Confirmation
from vedette_services.status.status import Eval

TARGET = 475.0
EPISODES = 20
CONFIRM = (0, 1, 2, 5, 10)
_EVALUATIONS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """True mean returns of the models of a run, and the noise of their episodes.

    Args:
        begin, end: the first and the last value of the line; `end` is above the target.
        rise: evaluations from `begin` to the target.
        models: deviation of a model's mean from the line.
        episodes: deviation of an episode's return from its model's mean.
    """

    begin: float
    end: float
    rise: int
    models: float
    episodes: float

    def true_means(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield the true mean of one evaluated model after the other."""
        for number in range(_EVALUATIONS_MAX):
            line = self.begin + (TARGET - self.begin) * number / self.rise
            yield min(line, self.end) + rng.normal(0.0, self.models)

    def play(self, true_mean: float, rng: np.random.Generator) -> float:
        """Return the mean return of an evaluation."""
        return float(rng.normal(true_mean, self.episodes, EPISODES).mean())


def end_run(curve: LearningCurve, confirm: int, rng: np.random.Generator) -> tuple[int, float]:
    """Return the number of evaluations until a run ends, and the true mean of its last model."""
    for number, true_mean in enumerate(curve.true_means(rng), 1):
        played = curve.play(true_mean, rng)
        if played < TARGET:
            continue
        confirmation = Confirmation(Eval(return_mean=played), TARGET, confirm)
        while not confirmation.is_over:
            fresh = Eval(return_mean=curve.play(true_mean, rng), episodes=EPISODES)
            confirmation.add(fresh)
        if confirmation.is_confirmed:
            return number, true_mean
    raise ValueError(f"a run does not end within {_EVALUATIONS_MAX:,} evaluations")


def table_lines(curve: LearningCurve, runs: int, seed: int) -> Iterator[str]:
    """Yield the lines of a table: a row for each value of `evaluation.confirm`."""
    yield "| `evaluation.confirm` | runs that end with a model below the target | end, median |"
    yield "|---|---|---|"
    for confirm in CONFIRM:
        rng = np.random.default_rng([seed, confirm])
        ends = [end_run(curve, confirm, rng) for _ in range(runs)]
        below = sum(true_mean < TARGET for _, true_mean in ends) / runs
        middle = statistics.median(number for number, _ in ends)
        yield f"| {confirm} | {100 * below:.0f} % | evaluation {middle:.0f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000, help="for each row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--begin", type=float, default=375.0)
    parser.add_argument("--end", type=float, default=490.0)
    parser.add_argument("--rise", type=int, default=100)
    parser.add_argument("--models", type=float, default=10.0)
    parser.add_argument("--episodes", type=float, default=40.0)
    given = parser.parse_args()
    curve = LearningCurve(given.begin, given.end, given.rise, given.models, given.episodes)
    print("\n".join(table_lines(curve, given.runs, given.seed)))


if __name__ == "__main__":
    main()
