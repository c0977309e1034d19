"""A training whose learner is killed five times, beside an undisturbed one, seed by seed.

``scripts/killed_training 5`` trains DQN on CartPole-v1 by its preset to the solved return, five
seeds, each once in peace and once with `kill -9` of the whole learner at five random moments. It
tells the optimization steps of both: those behind the solving model, and all that were done, with
those that were done again after a kill because no checkpoint held them. Single seeds of DQN differ
by a factor of two and more, so what counts is the ratio of the medians, of the steps behind the
solving model; five seeds are few.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from daemons import Daemons, free_address, wait_for
from trial import Trial, parser_of

from vedette_services.learner.boards import BoardReader, Learning

KILLS = 5
KILLED_BY = 2000
"""Optimization steps by which the last kill has come; some seeds solve it before and miss kills."""
RATIO_MAX = 1.3
SOLVED_WITHIN_S = 600.0
UP_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Solved:
    """What one training took.

    Args:
        steps: optimization steps behind the model that solved it.
        again: steps beyond those that were done, and lost with a kill.
        kills: that it had until then.
    """

    steps: int
    again: int
    kills: int

    @property
    def done(self) -> int:
        """All optimization steps that were done for it."""
        return self.steps + self.again


class Training:
    """A learner and a manager with one actor, as `vedette run` would start them."""

    def __init__(self, house: Daemons, seed: int) -> None:
        self._house, self._seed = house, seed
        self._run = house.place / "run"
        self._address = free_address()
        self._start()
        house.start("manager", "actors", "--learner", self._address, "--count", 1)

    def _start(self) -> None:
        self._learner = self._house.start(
            *("learner", "learner", "--env", "CartPole-v1", "--agent", "dqn"),
            *("--bind", self._address, "--out", self._run, f"seed={self._seed}"),
        )

    def solve(self, kills: list[int]) -> Solved:
        """Train to the solved return, killed at so many optimization steps each."""
        again = killed = 0
        for at in kills:
            if not self._reaches(at):
                break
            self._learner.kill9()
            steps = self._steps()
            killed += 1
            self._start()
            again += steps - self._resumed(killed + 1)
        code = self._learner.wait(SOLVED_WITHIN_S)
        assert code == 0, f"the learner ended with {code}"
        summary = json.loads((self._run / "summary.json").read_text())
        assert summary["exit_reason"] == "target_return", f"{summary['exit_reason']}"
        assert summary["samples"]["lost"] == 0, f"{summary['samples']}"
        return Solved(summary["eval"]["best_version"], again, killed)

    def _reaches(self, steps: int) -> bool:
        """Wait for an optimization step; False where the training is over before."""
        wait_for(
            lambda: not self._learner.running or self._steps() >= steps, "step", SOLVED_WITHIN_S
        )
        return self._learner.running

    def _resumed(self, epoch: int) -> int:
        """The step from which a start goes on."""
        wait_for(lambda: self._board().epoch >= epoch, "trainer", UP_WITHIN_S)
        return self._board().opt_steps

    def _steps(self) -> int:
        return self._board().opt_steps

    def _board(self) -> Learning:
        """The trainer's last word; the file is another one after each start."""
        return BoardReader(self._run / "live" / "learning.map", Learning).read()


def solve(place: Path, seed: int, kills: list[int]) -> Solved:
    """One training in a folder of its own."""
    place.mkdir()
    with Daemons(place) as house:
        return Training(house, seed).solve(kills)


def compare(trial: Trial, seeds: int, first: int) -> None:
    """Every seed in peace and killed, and the ratio of the medians."""
    peace, killed = [], []
    for seed in range(first, first + seeds):
        rng = random.Random(seed)
        kills = sorted(rng.sample(range(1, KILLED_BY), KILLS))
        peace.append(solve(trial.place / f"peace-{seed}", seed, []))
        killed.append(solve(trial.place / f"killed-{seed}", seed, kills))
        trial.say(
            f"seed {seed}: {peace[-1].steps} steps in peace; killed {killed[-1].kills} times "
            f"(at {kills}) {killed[-1].steps}, and {killed[-1].again} again"
        )
    ours, theirs = ([one.done for one in found] for found in (killed, peace))
    kept = [one.steps for one in killed]
    median = statistics.median(theirs)
    ratios = [statistics.median(found) / median for found in (kept, ours)]
    print(
        f"medians of {seeds} seeds: {median:.0f} steps in peace, {statistics.median(kept):.0f} "
        f"({ratios[0]:.2f}) with kills, {statistics.median(ours):.0f} ({ratios[1]:.2f}) with those "
        "done again"
    )
    trial.check(ratios[0] <= RATIO_MAX, f"{ratios[0]:.2f} times the steps, not {RATIO_MAX}")


def main() -> int:
    """The command; 0 where kills cost little enough."""
    parser = parser_of("killed_training", __doc__)
    parser.add_argument("seeds", nargs="?", type=int, default=5, help="how many [5]")
    asked = parser.parse_args()
    with Trial("killed-training", asked.out) as trial:
        compare(trial, asked.seeds, asked.seed)
        return trial.verdict()


if __name__ == "__main__":
    sys.exit(main())
