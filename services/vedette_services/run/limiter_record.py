"""Where the balance of a run's limiter begins, as ``run.json`` keeps it.

A start with other settings than the last one begins the balance at its own counts. Else a run that
is resumed with another replay ratio would first make up, by thousands of steps on old samples or by
as long a standstill, for what the old ratio left. With the same settings the balance goes on.

This file imports neither numpy nor pydantic: `vedette status` reads a run's identity, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vedette_rl.replay.limiter import Limiter, LimiterOrigin


@dataclass(frozen=True, slots=True)
class LimiterRecord:
    """The limiter of a run's last start.

    Args:
        settings: `Limiter.settings`.
        inserted, sampled: of its `LimiterOrigin`; None: the balance begins with the first sample.
    """

    settings: tuple[float, ...]
    inserted: int | None = None
    sampled: int | None = None

    @classmethod
    def from_json(cls, found: Any) -> LimiterRecord | None:
        """Read it from ``run.json``; None where an earlier version has written that.

        Raises:
            TypeError, ValueError, KeyError: it is none.
        """
        if found is None:
            return None
        settings = tuple(float(value) for value in found["settings"])
        counts = found["inserted"], found["sampled"]
        if counts == (None, None):
            return cls(settings)
        return cls(settings, *map(int, counts))

    @property
    def origin(self) -> LimiterOrigin | None:
        """Where the balance begins; None: with the first sample drawn."""
        from vedette_rl.replay.limiter import LimiterOrigin  # brings pydantic

        if self.inserted is None or self.sampled is None:
            return None
        return LimiterOrigin(self.inserted, self.sampled)


def next_record(
    last: LimiterRecord | None, limiter: Limiter, inserted: int, count_draws: Callable[[int], int]
) -> LimiterRecord:
    """Return the record of a start.

    Args:
        last: of the start before; None: there was none.
        limiter: that of this start, without an origin.
        inserted: samples that the replay has now, overwritten ones too.
        count_draws: returns the samples drawn that count for a replay with so many.
    """
    if last is None or inserted == 0:
        return LimiterRecord(limiter.settings)
    shrunk = last.inserted is not None and inserted < last.inserted
    if last.settings == limiter.settings and not shrunk:
        return last
    begun = max(inserted, limiter.floor + limiter.min_size)
    return LimiterRecord(limiter.settings, begun, count_draws(inserted))


def remaining_draws(
    meta: Mapping[str, Any], inserted: int, origin: LimiterOrigin | None = None
) -> int:
    """Return the draws of a checkpoint that count for the limiter: of a replay that has lost rows
    since, or begins empty, only their share.

    Args:
        meta: the checkpoint's meta.
        inserted: rows that the replay has now, overwritten ones too.
        origin: where the balance begins: draws before it are not shared out.
    """
    before, sampled = int(meta["inserted"]), int(meta["sampled"])
    if inserted >= before:
        return sampled
    if origin is None:
        return sampled * inserted // before
    if before <= origin.inserted or sampled <= origin.sampled:
        return min(sampled, origin.sampled)
    share = max(0, inserted - origin.inserted), before - origin.inserted
    return origin.sampled + (sampled - origin.sampled) * share[0] // share[1]
