"""The limiter: keeps samples drawn per sample inserted inside a band, by making one side wait.

With ``rate = samples_per_insert / rows_per_step`` (a step processor that makes several samples of
an environment's step does not have the learner draw more), ``surplus = rate * inserted - sampled``,
the samples that may still be drawn for what was inserted, and ``center = rate * min_size``, the
surplus when drawing begins:

* inserting waits while ``surplus > center + error_buffer`` (the learner is behind);
* drawing waits while ``surplus - batch_size < center - error_buffer`` (the actors are).

It is Acme's SampleToInsertRatio, but for two things. What is under way when inserting is to wait is
inserted all the same, so the band's upper edge is soft. And where the settings of a run change, the
balance begins again there (`LimiterOrigin`): no side makes up for what other settings have left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vedette_rl.errors import RlError
from vedette_rl.replay.config import ReplayConfig


@dataclass(frozen=True, slots=True)
class LimiterOrigin:
    """The counts at which a run's limiter was last made of other settings: its balance begins
    there, in the middle of the band.

    Args:
        inserted: samples inserted until then; those of a warm-up that is not over count, too.
        sampled: samples drawn until then.
    """

    inserted: int
    sampled: int

    @property
    def counts(self) -> tuple[int, int]:
        """Both, as they travel between processes."""
        return self.inserted, self.sampled


@dataclass(frozen=True, slots=True)
class Limiter:
    """Decides which side must wait. It keeps no count of its own.

    Args:
        samples_per_insert: samples drawn for each sample inserted; 0: no side waits, but for
            `min_size`.
        min_size: samples inserted before the first may be drawn (the warm-up).
        error_buffer: half the band, in samples drawn.
        batch_size: samples drawn at once.
        floor: samples that a power failure took from the replay: the warm-up begins behind them.
        rows_per_step: samples that a step processor makes of each step, on average, of which
            `samples_per_insert` counts one.
        origin: where the balance begins; None: with the first sample drawn.

    Raises:
        RlError: both sides would wait for each other.
    """

    samples_per_insert: float
    min_size: int
    error_buffer: float
    batch_size: int
    floor: int = 0
    rows_per_step: float = 1.0
    origin: LimiterOrigin | None = None

    def __post_init__(self) -> None:
        if self.samples_per_insert and 2 * self.error_buffer < self.batch_size:
            raise RlError(
                f"replay.error_buffer is {self.error_buffer:g}, and batches of {self.batch_size} "
                f"would never be drawn: raise it to {self.batch_size / 2:g} or more"
            )

    def sample_surplus(self, inserted: int, sampled: int) -> float:
        """Samples that may still be drawn for what was inserted; below 0 in debt."""
        begun = self._origin
        return self.rate * (self.min_size + inserted - begun.inserted) - (sampled - begun.sampled)

    @property
    def _origin(self) -> LimiterOrigin:
        return self.origin or LimiterOrigin(self.min_size, 0)

    @property
    def settings(self) -> tuple[float, ...]:
        """What it is made of: where this changes, a run's balance begins again."""
        made_of = (self.samples_per_insert, self.min_size, self.error_buffer, self.batch_size)
        return (*map(float, made_of), self.rows_per_step)

    @property
    def rate(self) -> float:
        """Samples drawn for each that is inserted, whatever it was made of."""
        return self.samples_per_insert / self.rows_per_step

    @property
    def _ratio(self) -> str:
        each = "sample" if self.rows_per_step == 1 else "step's samples"
        return f"replay ratio: {self.samples_per_insert:g} drawn per {each}"

    def insert_wait_reason(self, inserted: int, sampled: int) -> str:
        """The reason why inserting waits, as a sentence; empty where it need not."""
        if not self.samples_per_insert or inserted - self.floor < self.min_size:
            return ""
        most = self.rate * self.min_size + self.error_buffer
        surplus = self.sample_surplus(inserted, sampled)
        if surplus <= most:
            return ""
        return (
            f"actors wait: the learner must draw {surplus - most:,.0f} more samples ({self._ratio})"
        )

    def insertable_samples(self, inserted: int, sampled: int) -> int | None:
        """Samples that may be inserted before inserting waits; None: as many as there are."""
        if not self.samples_per_insert:
            return None
        most = self.rate * self.min_size + self.error_buffer
        room = (most - self.sample_surplus(inserted, sampled)) / self.rate
        return max(0, self.min_size - (inserted - self.floor), math.ceil(room))

    def sample_wait_reason(self, inserted: int, sampled: int) -> str:
        """The reason why drawing a batch waits, as a sentence; empty where it need not."""
        if (there := inserted - self.floor) < max(1, self.min_size):
            return f"learner waits: {there:,} of {max(1, self.min_size):,} warm-up samples"
        if not self.samples_per_insert:
            return ""
        least = self.rate * self.min_size - self.error_buffer + self.batch_size
        surplus = self.sample_surplus(inserted, sampled)
        if surplus >= least:
            return ""
        missing = (least - surplus) / self.rate
        return f"learner waits: {missing:,.0f} more samples must be inserted ({self._ratio})"

    def stats(self, inserted: int, sampled: int) -> dict[str, float]:
        """Samples drawn per sample inserted since the balance began; the distance from target."""
        since = inserted - self._origin.inserted
        drawn = sampled - self._origin.sampled
        center = self.rate * self.min_size
        return {
            "samples_per_insert": self.rows_per_step * drawn / since if since > 0 else 0.0,
            "surplus": self.sample_surplus(inserted, sampled) - center,
        }


def make_limiter(
    config: ReplayConfig,
    *,
    usual: float,
    min_size: int,
    batch_size: int,
    insert_rows: int,
    floor: int = 0,
    rows_per_step: float = 1.0,
    origin: LimiterOrigin | None = None,
) -> Limiter:
    """The limiter that a configuration asks for.

    Args:
        config: the replay's.
        usual: samples drawn for each inserted where the configuration has no number.
        min_size: the warm-up, in samples.
        batch_size: samples drawn at once.
        insert_rows: samples inserted at once (``n_buffer``).
        floor, rows_per_step, origin: as `Limiter` has them.

    Raises:
        RlError: both sides would wait for each other.
    """
    wanted = usual if config.samples_per_insert is None else config.samples_per_insert
    rate = wanted / rows_per_step
    error_buffer = config.error_buffer
    if error_buffer is None:
        error_buffer = max(0.1 * rate * min_size, 2 * batch_size, 2 * rate * insert_rows)
    return Limiter(wanted, min_size, error_buffer, batch_size, floor, rows_per_step, origin)
