"""Settings that several parts share: schedules, and marks of what is stored.

Marked settings are part of what a run has stored, which a resume must leave as they were; with
another setting that is `IN_BEST` it begins a new best evaluation.

::

    class MyConfig(AgentConfig):
        n_blocks: Annotated[int, IN_WEIGHTS] = 2
        reward_offset: Annotated[float, IN_SAMPLES] = 0.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from vedette_rl.settings.part import SettingsPart

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True, slots=True)
class StoredIn:
    """A mark for a field's `Annotated`.

    Args:
        what: samples of the replay, weights of checkpoints, or the return of the best evaluation.
        sums_only: it is in sums over several steps alone, not in transitions of one.
        if_any: whether there is any (it is 0, or more) is stored, and not the number.
    """

    what: Literal["samples", "weights", "best"]
    sums_only: bool = False
    if_any: bool = False


IN_SAMPLES = StoredIn("samples")
IN_WEIGHTS = StoredIn("weights")
IN_BEST = StoredIn("best")
IN_SAMPLES_SUMS = StoredIn("samples", sums_only=True)
IN_SAMPLES_IF_ANY = StoredIn("samples", if_any=True)


def marks_of(part: type[BaseModel], name: str) -> frozenset[StoredIn]:
    """Return the marks of a field, also of one that a subclass declares again."""
    fields = [getattr(cls, "model_fields", {}).get(name) for cls in part.__mro__]
    return frozenset(
        mark for field in fields if field for mark in field.metadata if isinstance(mark, StoredIn)
    )


class ScheduleConfig(SettingsPart):
    """The change of learning rates, or of another number, over a run, in optimization steps."""

    model_config = ConfigDict(allow_inf_nan=False)
    place = "schedule"

    kind: Literal["constant", "linear", "cosine"] = "constant"
    """``linear`` falls in a line, ``cosine`` along half a cosine (arXiv:1608.03983)."""
    warmup_opts: Annotated[int, Field(ge=0)] = 0
    """steps in which the number grows from 0 to its full size; 0 begins with it."""
    total_opts: Annotated[int, Field(ge=0)] = 0
    """the step at which ``linear`` and ``cosine`` have reached `final`; it stays there."""
    final: Fraction = 0.0
    """what is left of the full size at the end: 0.1 is a tenth."""

    @property
    def changes(self) -> bool:
        """True if the number changes at all."""
        return self.kind != "constant" or self.warmup_opts > 0

    def factor(self, step: float) -> float:
        """The factor of what it scales at an optimization step, counted from 1. The same for
        tensors is `vedette_rl.networks.adam.schedule_factor`."""
        factor = min(1.0, step / max(self.warmup_opts, 1))
        if self.kind == "constant":
            return factor
        progress = (step - self.warmup_opts) / (self.total_opts - self.warmup_opts)
        progress = min(1.0, max(0.0, progress))
        if self.kind == "cosine":
            progress = 0.5 - 0.5 * math.cos(math.pi * progress)
        return factor * (1.0 - (1.0 - self.final) * progress)

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.kind != "constant" and self.total_opts <= self.warmup_opts:
            raise ValueError(
                f"schedule.total_opts {self.total_opts} must be above schedule.warmup_opts "
                f"{self.warmup_opts}: name the optimization step at which schedule.final is reached"
            )
        return self
