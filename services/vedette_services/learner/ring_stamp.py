"""What the gateway commits with the replay's rows: the ledger, and the actors' numbers."""

from __future__ import annotations

import struct

from vedette_protocol.errors import StampError
from vedette_protocol.ledger import Ledger
from vedette_services.learner.ladder_slots import LadderSlots

_PREFIX = struct.Struct("<I")  # bytes of the numbers that follow; the ledger is the rest


def pack_stamp(ledger: Ledger, slots: LadderSlots) -> bytes:
    """Both as bytes."""
    numbers = slots.to_bytes()
    return _PREFIX.pack(len(numbers)) + numbers + ledger.to_bytes()


def read_stamp(run_id: str, stamp: bytes, now: float) -> tuple[Ledger, LadderSlots]:
    """What `pack_stamp` was given; new ones where nothing was committed yet.

    Raises:
        StampError: these bytes are none, or another run's.
    """
    if not stamp:
        return Ledger(run_id), LadderSlots()
    try:
        (length,) = _PREFIX.unpack_from(stamp)
        slots = LadderSlots.from_bytes(stamp[_PREFIX.size : _PREFIX.size + length])
    except (struct.error, ValueError, TypeError, AttributeError) as error:
        raise StampError(str(error)) from error
    ledger = Ledger.from_bytes(stamp[_PREFIX.size + length :], now)
    if ledger.run_id != run_id:
        raise StampError(f"it is of run {ledger.run_id!r}, not {run_id!r}")
    return ledger, slots
