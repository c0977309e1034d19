"""The evidence that a model has reached the target: more evaluations of it, on fresh episodes.

Among many noisy evaluations one is at the target by luck before the policy is. Other episodes of
the same model have no part in that luck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from vedette_services.config.run_config import RunConfig
from vedette_services.status.status import Eval


@dataclass(slots=True)
class Confirmation:
    """Fresh evaluations of one model: their mean stays at the target after each, or it has failed.

    Args:
        hit: the evaluation that reached the target.
        target: ``stop.target_return``.
        evaluations: how many confirm it (`evaluation.confirm`).
    """

    hit: Eval
    target: float
    evaluations: int
    _played: int = 0
    _episodes: int = 0
    _total: float = 0.0
    _squares: float | None = 0.0  # of distances from the hit's mean; None: not known
    _cut: int | None = 0

    @property
    def return_mean(self) -> float:
        """Mean return of the fresh episodes; of the hit before there are any."""
        return self._total / self._episodes if self._episodes else float(self.hit.return_mean or 0)

    @property
    def is_over(self) -> bool:
        """True once it is confirmed, or has failed."""
        return self._played >= self.evaluations or self.return_mean < self.target

    @property
    def is_confirmed(self) -> bool:
        """True once the fresh episodes confirm it."""
        return self.is_over and self.return_mean >= self.target

    @property
    def return_std(self) -> float | None:
        """Deviation of the returns of all fresh episodes; None where it is not known."""
        if self._squares is None or not self._episodes:
            return None
        distance = self.return_mean - float(self.hit.return_mean or 0)
        return math.sqrt(max(0.0, self._squares / self._episodes - distance**2))

    def add(self, fresh: Eval) -> None:
        """Add a fresh evaluation of the same model: its mean and its number of episodes, and its
        deviation and the number of episodes that were cut where they are known."""
        assert fresh.return_mean is not None, "it has ended"
        assert fresh.episodes is not None, "it has ended"
        self._played += 1
        self._episodes += fresh.episodes
        self._total += fresh.episodes * fresh.return_mean
        if self._squares is not None and fresh.return_std is not None:
            distance = fresh.return_mean - float(self.hit.return_mean or 0)
            self._squares += fresh.episodes * (fresh.return_std**2 + distance**2)
        else:
            self._squares = None
        if self._cut is not None and fresh.episodes_cut is not None:
            self._cut += fresh.episodes_cut
        else:
            self._cut = None

    def result(self) -> Eval:
        """Return the evaluation with what was confirmed. A model of which fresh episodes were
        played is ranked by these alone: the evaluation was selected."""
        ranked = replace(
            self.hit,
            best_return_mean=self.return_mean,
            fresh_return_mean=self.return_mean if self._episodes else None,
            fresh_return_std=self.return_std,
            fresh_episodes=self._episodes or None,
            fresh_episodes_cut=self._cut if self._episodes else None,
            unconfirmed=int(self._episodes > 0 and self.return_mean < self.target),
            confirming="",
        )
        if not self.is_confirmed:
            return ranked
        return replace(
            ranked,
            reached_return_mean=self.return_mean,
            reached_version=self.hit.version,
            reached_episodes=self._episodes,
        )

    def progress(self) -> str:
        """Return what is being confirmed, in words for the status."""
        hit = self.hit
        return (
            f"version {hit.version or 0:,} is at the target ({hit.return_mean:.1f}): "
            f"fresh evaluation {self._played + 1} of {self.evaluations} is played"
        )

    def outcome(self) -> str:
        """Return what came of it, in words for the log."""
        found = f"{self.return_mean:.1f} over {self._episodes:,} fresh episodes"
        version = f"version {self.hit.version or 0:,}"
        if self.is_confirmed:
            return f"{version} has reached the target: {found}"
        hit = f"{self.hit.return_mean:.1f} in its evaluation"
        return f"{version} reached {hit}, but only {found}: the run goes on"


def begin_confirmation(hit: Eval, config: RunConfig) -> Confirmation | None:
    """Return what confirms an evaluation; None if it is below the target, or nothing is played."""
    target = config.stop.target_return
    count = config.evaluation.confirm
    if target is None or not count or hit.return_mean is None or hit.return_mean < target:
        return None
    return Confirmation(hit, target, count)


def mark_reached(hit: Eval, config: RunConfig) -> Eval:
    """Return an evaluation that nothing confirms, marked where it is at the target: it ends the run
    as it is."""
    target = config.stop.target_return
    if target is None or hit.return_mean is None or hit.return_mean < target:
        return hit
    return replace(
        hit,
        reached_return_mean=hit.return_mean,
        reached_version=hit.version,
        reached_episodes=0,
    )
