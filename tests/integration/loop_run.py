"""A run of counting environments whose learner is a training loop of a user's own."""

from __future__ import annotations

import sys
from pathlib import Path

from counting_run import SETTINGS, CountingRun
from daemons import HERE, ROOT, Daemon, Daemons

RATE = 8.0
WARMUP = 500
SEQUENCES = ("replay.sequence=4", "replay.burn_in=2", "agent.batch_size=16")
"""Of as many steps in a batch as there are rows otherwise."""


class LoopRun(CountingRun):
    """Counting environments that feed the loop of `replay_loop`.

    Args:
        has_keys: it draws sequences, for which rows say which of them follow one another.
    """

    def __init__(
        self, daemons: Daemons, *settings: str, source: Path = ROOT, has_keys: bool = False
    ) -> None:
        drawn = (
            f"learner.warmup_period={WARMUP}",
            f"replay.samples_per_insert={RATE}",
            *(SEQUENCES if has_keys else ("agent.batch_size=64",)),
        )
        super().__init__(
            daemons,
            *drawn,
            *settings,
            agent="",
            allow=("counting_env", "replay_loop"),
            source=source,
        )

    def start_learner(self, source: Path = ROOT) -> Daemon:
        self.learner = Daemon(
            "loop",
            self._daemons,
            [
                *(sys.executable, str(HERE / "replay_loop.py"), str(self.run), str(self.address)),
                *(*SETTINGS, f"env.kwargs.tally={self.tally}", *self._settings),
            ],
            source,
        )
        self._daemons.started.append(self.learner)
        return self.learner

    def assert_nothing_was_lost(self) -> dict[str, int]:
        """The limiter held, too."""
        accounting = super().assert_nothing_was_lost()
        drawn_per_insert: float = self.summary["limiter"]["samples_per_insert"]
        after_warmup = accounting["inserted"] - WARMUP
        assert drawn_per_insert * after_warmup <= RATE * (after_warmup + 0.1 * WARMUP)
        return accounting
