"""How much the gateway lets be in flight."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlightLimits:
    """Bounds over all managers together.

    Args:
        batches: unacknowledged batches; below the receiving queue, so that it is never full.
        payload_bytes: unacknowledged bytes.
    """

    batches: int = 4096
    payload_bytes: int = 256 << 20

    def batches_of(self, size: int) -> int:
        """How many batches of so many bytes are within both."""
        return min(self.batches, self.payload_bytes // size)
