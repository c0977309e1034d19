"""Marks settings that are part of what a run has stored, which a resume must leave as they were.

::

    class MyConfig(AgentConfig):
        n_blocks: Annotated[int, IN_WEIGHTS] = 2
        reward_offset: Annotated[float, IN_SAMPLES] = 0.0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class StoredIn:
    """A mark for a field's `Annotated`.

    Args:
        what: samples of the replay, or weights of checkpoints.
        sums_only: it is in sums over several steps alone, not in transitions of one.
    """

    what: Literal["samples", "weights"]
    sums_only: bool = False


IN_SAMPLES = StoredIn("samples")
IN_WEIGHTS = StoredIn("weights")
IN_SAMPLES_SUMS = StoredIn("samples", sums_only=True)


def marks_of(part: type[BaseModel], name: str) -> frozenset[StoredIn]:
    """Return the marks of a field, also of one that a subclass declares again."""
    fields = [getattr(cls, "model_fields", {}).get(name) for cls in part.__mro__]
    return frozenset(
        mark for field in fields if field for mark in field.metadata if isinstance(mark, StoredIn)
    )
