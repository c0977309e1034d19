"""Chaos: a real training while all its processes, its network and its disk fail.

``scripts/chaos --minutes 5 --seed 1`` trains DQN on CartPole-v1 with a learner and two managers,
whose connections go through a proxy. The run lies on a disk of its own, where one can be made
(root, loop devices): its power fails, its syncs fail, it runs full. Until the time is up, something
bad happens every few seconds; whatever ended is started again, as a supervisor of services would.
Then there is peace, and the run has to prove itself: CartPole-v1 is solved, the accounting
balances, everybody ends well.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

from chaos_acts import ACTS, Stage
from chaos_disk import LearnersDisk
from daemons import Daemons, balances, status, wait_for
from ext4_image import NoLoopDeviceError
from footprints import Footprints
from trial import Trial, parser_of

PAUSE_S = (1.0, 6.0)
"""Between two bad things."""

SOLVED = 475.0
PEACE_S = 300.0
"""For the training to get there when the chaos is over."""

WINDOW_BATCHES = 64
SETTINGS = (
    "stop.target_return=none",
    "learner.save_interval=500",
    "actors.envs_per_actor=4",
    "replay.sync_interval_s=1",
    f"actors.window_batches={WINDOW_BATCHES}",
)


class Chaos:
    """One run, what was done to it, and what is wrong with it."""

    def __init__(self, trial: Trial, stage: Stage, rng: random.Random) -> None:
        self._stage = stage
        self._rng = rng
        self.say = trial.say
        self.wrong = trial.wrong
        self.done: Counter[str] = Counter()
        self.footprints = Footprints()
        self._inserted = 0

    def rage(self, seconds: float) -> None:
        """Do bad things for so long, and look whether the run bears them."""
        until = time.monotonic() + seconds
        names = sorted(ACTS)
        while time.monotonic() < until:
            time.sleep(self._rng.uniform(*PAUSE_S))
            name = self._rng.choice(names)
            did = ACTS[name](self._stage, self._rng)
            if did:
                self.done[name] += 1
                self.say(did)
            for text in self._stage.revive():
                self.say(text)
            self.look()

    def look(self) -> dict[str, Any]:
        """The status, if there is one; it must balance and samples never become fewer."""
        self.footprints.look(self._stage.house.alive())
        found = status(self._stage.learner_address)
        if not found:
            return {}
        samples = found["samples"]
        if not balances(samples):
            self.wrong.append(f"the sample accounting does not balance: {samples}")
        if self._stage.disk:
            self._inserted -= self._stage.disk.newly_lost()
        if samples["inserted"] < self._inserted:
            self.wrong.append(f"{self._inserted} samples were inserted, now {samples['inserted']}")
        self._inserted = max(self._inserted, samples["inserted"])
        return found

    def make_peace(self) -> None:
        """Wait until everybody is there, samples flow and the best model is good enough."""
        self.say("peace")
        began = time.monotonic()

        def good() -> bool:
            for text in self._stage.revive():
                self.say(text)
            found = self.look()
            best = found.get("eval", {}).get("best_return_mean")
            peace_s = time.monotonic() - began - 1.0  # what was on its way is older
            seen_s = [manager["last_seen_s"] for manager in found.get("managers", ())]
            heard = [seen for seen in seen_s if seen is not None and seen < peace_s]
            everybody = len(heard) == len(self._stage.managers)  # one may have started just now
            return best is not None and best >= SOLVED and everybody

        before = self._inserted
        try:
            wait_for(lambda: self.look() and self._inserted > before, "samples in peace", 60.0)
            wait_for(good, "solution of CartPole-v1", PEACE_S)
        except AssertionError as error:
            self.wrong.append(str(error))

    def end(self) -> dict[str, Any]:
        """Stop everybody; the summary."""
        for daemon in (*self._stage.managers, self._stage.learner):
            try:
                code = daemon.stop(60.0)
            except AssertionError as error:
                self.wrong.append(str(error))
                continue
            if code != 0:
                self.wrong.append(f"{daemon.name}, asked to stop, ended with {code}")
        if left := self._stage.house.alive():
            self.wrong.append(f"{len(left)} processes are left")
        summary: dict[str, Any] = json.loads((self._stage.run / "summary.json").read_text())
        return summary

    def judge(self, summary: dict[str, Any]) -> None:
        """Hold the last accounting against what was done."""
        samples = summary["samples"]
        if not balances(samples):
            self.wrong.append(f"the last accounting does not balance: {samples}")
        if samples["in_flight"] or samples["rejected"] or samples["dropped"]:
            self.wrong.append(f"samples in flight, rejected or dropped at the end: {samples}")
        rows = WINDOW_BATCHES * self._stage.n_buffer * self.done["kill a manager"]
        unsynced = self._stage.disk.lost if self._stage.disk else 0
        if samples["lost"] > rows + unsynced:
            self.wrong.append(
                f"{samples['lost']} samples are lost, more than {rows} in windows "
                f"and {unsynced} that were not synced when the disk failed"
            )
        self.wrong += self._stage.wrong


def main() -> int:
    """The command; 0 where the run bore it all."""
    parser = parser_of("chaos", __doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of chaos [5]")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with Trial("chaos", asked.out) as trial:
        with ExitStack() as stack:
            disk = disk_of_the_learner(trial)
            if disk:
                stack.enter_context(disk)
            house = stack.enter_context(Daemons(trial.place))
            stage = stack.enter_context(Stage(house, SETTINGS, disk))
            chaos = Chaos(trial, stage, rng)
            wait_for(lambda: chaos.look().get("opt_steps", 0) > 0, "optimization step", 120.0)
            chaos.say(f"it trains; chaos for {asked.minutes:g} minutes")
            chaos.rage(60.0 * asked.minutes)
            chaos.make_peace()
            summary = chaos.end()
            chaos.judge(summary)
            if disk:
                shutil.copytree(disk.run, trial.place / "run")
        tell(chaos, summary)
        return trial.verdict()


def disk_of_the_learner(trial: Trial) -> LearnersDisk | None:
    """A disk for the learner's run, where one can be made; says what is left out."""
    try:
        disk = LearnersDisk(trial.place / "disk")
    except (NoLoopDeviceError, OSError) as error:
        trial.say(f"the disk does not fail: {error}")
        return None
    if not disk.can_fail_syncs:
        trial.say("syncs do not fail: there is no C compiler")
    return disk


def tell(chaos: Chaos, summary: dict[str, Any]) -> None:
    """What was done, and what came of it."""
    acts = ", ".join(f"{name} {count}" for name, count in chaos.done.most_common())
    print(f"{chaos.done.total()} acts: {acts}")
    print(f"epoch {summary['epoch']}, {summary['opt_steps']} optimization steps")
    print(f"best return {summary['eval']['best_return_mean']}, accounting {summary['samples']}")
    for text in chaos.footprints.lines():
        print(text)


if __name__ == "__main__":
    sys.exit(main())
