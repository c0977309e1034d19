"""Kills: `kill -9` of the whole learner again and again, while actors push at full speed.

``scripts/kills 200`` runs counting environments that take no time at all on two managers. The
learner is killed at random moments: mostly while samples flow, now and then in the middle of a
start. After every kill and every restart the replay is held against what stood there before; at the
end every step that was ever played must have stood in it once, also those that are overwritten.
Ctrl-C ends it earlier, with the same proof of what was done until then.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable

from counting_run import CountingRun
from daemons import Daemons
from every_row import EveryRow
from trial import Trial, parser_of

from vedette_services.host.processes import StopSignals

SETTINGS = (
    "env.kwargs.sleep_s=0",
    "actors.envs_per_actor=8",
    "actors.n_buffer=100",
    "agent.batch_size=32",
    "replay.samples_per_insert=0",  # full speed also once it trains
)
MANAGERS = 2
FLOWING_S = 1.0
"""How long samples flow before a kill, at most."""
STARTING_SHARE = 0.2
"""Of the restarts that are killed once more before samples flow."""
START_S = 120.0
LOOK_S = 0.02


class Kills:
    """A run whose learner is killed, and the account of all its rows."""

    def __init__(self, trial: Trial, house: Daemons, rng: random.Random) -> None:
        self._trial = trial
        self._rng = rng
        self.run = CountingRun(house, *SETTINGS)
        for place in range(MANAGERS):
            self.run.start_manager(f"manager-{place}")
        ring = self.run.run / "replay" / "ring.json"
        self._wait(ring.exists, "replay", look=False)
        self.rows = EveryRow(ring.parent)
        self.flowing = 0
        self.starting = 0
        self.start_s: list[float] = []
        self.flow(time.monotonic())

    def flow(self, began: float) -> None:
        """Wait until rows come that had not come before."""
        before = self.rows.look()
        self._wait(lambda: self.rows.look() > before, "rows")
        self.start_s.append(time.monotonic() - began)

    def kill(self) -> None:
        """Let it flow for a random time, kill the learner, and start it again."""
        self._pass(self._rng.uniform(0.0, FLOWING_S))
        self._kill()
        self.flowing += 1
        began = time.monotonic()
        self.run.start_learner()
        if self._rng.random() < STARTING_SHARE:
            self._pass(self._rng.uniform(0.0, min(self.start_s)))
            self._kill()
            self.starting += 1
            began = time.monotonic()
            self.run.start_learner()
        self.flow(began)
        self.rows.look_again()

    def _kill(self) -> None:
        """The daemon alone, whose parts share its fate, or all of them at one blow."""
        learner = self.run.learner
        assert learner.running, "the learner had ended by itself"
        if self._rng.random() < 0.5:
            os.killpg(learner.pid, signal.SIGKILL)
        else:
            os.kill(learner.pid, signal.SIGKILL)
        learner.wait(10.0)
        self.rows.look_again()

    def _pass(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(LOOK_S)
            self.rows.look()

    def _wait(self, done: Callable[[], bool], what: str, *, look: bool = True) -> None:
        deadline = time.monotonic() + START_S
        while not done():
            assert time.monotonic() < deadline, f"no {what} within {START_S:g} s"
            assert self.run.learner.running, "the learner ended by itself"
            time.sleep(LOOK_S)
            if look:
                self.rows.look()

    def judge(self) -> None:
        """Stop everybody, and hold the account against the accounting and what was played."""
        accounting = self.run.stop()
        self.rows.look_again()
        missing = self.rows.missing(self.run.tally)
        check = self._trial.check
        check(self.rows.sound, f"{self.rows}")
        check(missing == 0, f"{missing} steps were played and never stood in the replay")
        check(
            accounting["produced"] == accounting["inserted"] == self.rows.rows,
            f"{self.rows.rows} rows, accounting {accounting}",
        )
        check(accounting["lost"] == accounting["in_flight"] == 0, f"accounting {accounting}")
        print(f"{self.rows}, {missing} missing; accounting {accounting}")


def kill_often(trial: Trial, count: int, seed: int, stop: StopSignals | None = None) -> Kills:
    """Kill the learner `count` times while samples flow, and some more while it starts.

    Args:
        stop: ends it earlier, with the same proof.
    """
    with Daemons(trial.place) as house:
        kills = Kills(trial, house, random.Random(seed))
        trial.say(f"samples flow; {count} kills")
        while kills.flowing < count and not stop:
            kills.kill()
            trial.say(
                f"kill {kills.flowing} and {kills.starting} in starts: {kills.rows}; "
                f"up again in {kills.start_s[-1]:.1f} s"
            )
            if not kills.rows.sound:
                break
        kills.judge()
    return kills


def main() -> int:
    """The command; 0 where every row stood once."""
    parser = parser_of("kills", __doc__)
    parser.add_argument("count", nargs="?", type=int, default=200, help="of kills [200]")
    asked = parser.parse_args()
    with Trial("kills", asked.out) as trial:
        kills = kill_often(trial, asked.count, asked.seed, StopSignals())
        starts = sorted(kills.start_s)
        print(
            f"{kills.flowing} kills while samples flowed, {kills.starting} in the middle of a "
            f"start; {trial.seconds:.0f} s; samples flowed again after "
            f"{starts[len(starts) // 2]:.1f} s (median), {starts[-1]:.1f} s at most"
        )
        return trial.verdict()


if __name__ == "__main__":
    sys.exit(main())
