"""A mark of settings that only the learner reads, and does not tell its peers.

A setting without it travels where it is off its default, and a peer that does not know it refuses
the run with its name.

::

    class MyConfig(AgentConfig):
        clip_loss: Annotated[float, LEARNER_ONLY] = 0.0
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class LearnerOnly:
    """Marks a setting that no actor reads."""


LEARNER_ONLY = LearnerOnly()


def is_learner_only(part: type[BaseModel], name: str) -> bool:
    """Return True for a marked setting, also where a subclass declares it again."""
    fields = [getattr(cls, "model_fields", {}).get(name) for cls in part.__mro__]
    return any(LEARNER_ONLY in field.metadata for field in fields if field)
