"""The proof of exactly-once is in the data: what a replay of counting environments holds."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from counting_env import STEPS, UIDS, played
from daemons import environment, vedette
from numpy.typing import NDArray


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
    uid, t, sound = exported_steps(run)
    repeats = 0
    missing = dict[int, int]()
    for number, (steps, pid) in played(tally).items():
        numbers = t[uid == number]
        unique = np.unique(numbers)
        repeats += len(numbers) - len(unique)
        probed = steps == 1 and not len(unique)  # to see what a step gives, by whoever asks that
        if steps > len(unique) and not probed:
            missing[pid] = missing.get(pid, 0) + steps - len(unique)
    return Proof(len(t), len(np.unique(uid)), repeats, int((~sound).sum()), missing)


def exported_steps(run: Path) -> Steps:
    """Export a run's replay by the command; what its rows say."""
    out = run / "replay.npz"
    command = vedette("export", run, "--what", "replay", "--format", "npz", "--out", out)
    subprocess.run(command, env=environment(""), check=True, timeout=120, capture_output=True)
    with np.load(out) as columns:
        return steps_of(columns)


Steps = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]
"""Of rows: whose steps they are, which they are, and whether each is sound; all ``(rows,)``."""


def steps_of(columns: Mapping[str, NDArray[Any]]) -> Steps:
    """What rows say. A sound one goes from t to t + 1 of one environment, and its reward and ends
    are those of t + 1."""
    obs, after = (
        np.rint(columns[name] * np.array([UIDS, STEPS])).astype(np.int64)
        for name in ("obs", "next_obs")
    )
    t = obs[:, 1] + 1
    sound = (obs[:, 0] == after[:, 0]) & (after[:, 1] == t) & (columns["reward"] == t % 3)
    sound &= columns["terminated"] == (t % 7 == 0)
    sound &= columns["truncated"] == (t % 11 == 0)
    return obs[:, 0], obs[:, 1], sound
