"""The interface of recorders, which keep the numbers and texts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

Record = Mapping[str, float]
"""Scalars by name."""


@runtime_checkable
class Recorder(Protocol):
    """A sink of records. `step` is env steps for curves of returns, optimization steps for losses.

    ::

        recorder.write({"rollout/ep_rew_mean": 21.0}, step=env_steps)
        recorder.store({"train/loss": 0.1})        # aggregated until ...
        recorder.flush(step=opt_steps)             # ... the mean of what was stored is written
        recorder.close()
    """

    def write(self, record: Record, step: int) -> None:
        """Write scalars now."""
        ...

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name."""
        ...

    def flush(self, step: int) -> None:
        """Write what was stored, and push everything written so far out to the disk."""
        ...

    def write_text(self, name: str, text: str) -> None:
        """Write a text (the configuration, a note)."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...
