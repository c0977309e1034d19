"""The proof of exactly-once is in the data: what a replay of counting environments holds."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from counting_env import STEPS, UIDS, played
from daemons import environment, vedette


@dataclass(frozen=True, slots=True)
class Proof:
    """What stands in a replay.

    Args:
        rows: transitions.
        environments: that they come from.
        repeats: transitions that stand there more than once.
        broken: those that do not go from t to t + 1 of one environment, or whose reward or ends
            are not those of t + 1.
        missing: transitions that were played and do not stand there, by the process that played.
    """

    rows: int
    environments: int
    repeats: int
    broken: int
    missing: dict[int, int] = field(default_factory=dict)

    @property
    def once_each(self) -> bool:
        """What stands there is sound and stands there once."""
        return self.repeats == self.broken == 0

    @property
    def whole(self) -> bool:
        """Every transition that was ever played stands there once."""
        return self.once_each and not self.missing


def prove(run: Path, tally: Path) -> Proof:
    """Export a run's replay by the command, and look at every row.

    Args:
        tally: where the environments counted what they played.
    """
    out = run / "replay.npz"
    command = vedette("export", run, "--what", "replay", "--format", "npz", "--out", out)
    subprocess.run(command, env=environment(""), check=True, timeout=60, capture_output=True)
    with np.load(out) as columns:
        obs, after = (
            np.rint(columns[name] * np.array([UIDS, STEPS])).astype(np.int64)
            for name in ("obs", "next_obs")
        )
        reward, terminated = columns["reward"], columns["terminated"]
        truncated = columns["truncated"]
    t = obs[:, 1] + 1
    sound = (obs[:, 0] == after[:, 0]) & (after[:, 1] == t) & (reward == t % 3)
    sound &= (terminated == (t % 7 == 0)) & (truncated == (t % 11 == 0))
    repeats, missing = 0, dict[int, int]()
    for uid, (steps, pid) in played(tally).items():
        numbers = obs[obs[:, 0] == uid, 1]
        unique = np.unique(numbers)
        repeats += len(numbers) - len(unique)
        probed = steps == 1 and not len(unique)  # to see what a step gives, by whoever asks that
        if steps > len(unique) and not probed:
            missing[pid] = missing.get(pid, 0) + steps - len(unique)
    uids = len(np.unique(obs[:, 0]))
    return Proof(len(obs), uids, repeats, int((~sound).sum()), missing)
