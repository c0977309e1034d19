"""The ledger as bytes: written with the replay's rows, and read again after a restart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from vedette_protocol.account import IncarnationAccount, ManagerEntry, SampleAccounting
from vedette_protocol.errors import MalformedError, StampError
from vedette_protocol.limits import COUNT_MAX, STAMP_MAX_BYTES
from vedette_protocol.packing import pack, unpack

_FORMAT: Final = 1
_COUNTS: Final = (
    *("inserted", "duplicates", "rejected", "rejected_batches"),
    *("produced", "dropped", "window_rows", "sequenced", "base"),
)
_counts_of = attrgetter(*_COUNTS)  # each commit packs whoever sent something


@dataclass(slots=True)
class LedgerState:
    """The part of a ledger that is kept over a restart."""

    run_id: str
    next_number: int
    closed: SampleAccounting
    retired: list[int]
    entries: list[ManagerEntry]


def pack_ledger(
    run_id: str,
    next_number: int,
    closed: SampleAccounting,
    retired: Iterable[int],
    entries: Iterable[ManagerEntry],
) -> bytes:
    """Pack a ledger. An entry that has not changed since the last call is not packed again."""
    packed = [_pack_entry(entry) if entry.packed is None else entry.packed for entry in entries]
    return pack([_FORMAT, run_id, next_number, _sums(closed), list(retired), packed])


def unpack_ledger(stamp: bytes | bytearray | memoryview) -> LedgerState:
    """Unpack a ledger that `pack_ledger` has packed.

    Raises:
        StampError: the bytes are not a ledger, or one of another format.
    """
    try:
        value = unpack(stamp, STAMP_MAX_BYTES)
        if type(value) is not list or not value or value[0] != _FORMAT:
            raise StampError(f"expected format {_FORMAT}")
        _, run_id, next_number, closed, retired, packed = value
        entries = [_unpack_entry(blob) for blob in packed]
        state = LedgerState(str(run_id), _count(next_number), _accounting(closed), [], entries)
        state.retired.extend(map(_count, retired))
    except (MalformedError, ValueError, TypeError) as error:
        raise StampError(str(error)) from error
    return state


def _pack_entry(entry: ManagerEntry) -> bytes:
    accounts = [
        [
            *(
                a.incarnation,
                a.contiguous,
                a.extras.to_bytes(-(-a.extras.bit_length() // 8), "big"),
            ),
            *_counts_of(a),
            a.gone,
        ]
        for a in entry.accounts.values()
    ]
    entry.packed = pack([entry.id, entry.number, _sums(entry.closed), accounts])
    return entry.packed


def _unpack_entry(blob: bytes) -> ManagerEntry:
    manager, number, closed, accounts = unpack(blob, STAMP_MAX_BYTES)
    entry = ManagerEntry(str(manager), _count(number), closed=_accounting(closed))
    for incarnation, contiguous, extras, *counts, gone in accounts:
        account = IncarnationAccount(
            _count(incarnation), _count(contiguous), int.from_bytes(extras, "big")
        )
        for name, value in zip(_COUNTS, counts, strict=True):
            setattr(account, name, _count(value))
        account.gone = bool(gone)
        entry.accounts[account.incarnation] = account
    return entry


def _sums(accounting: SampleAccounting) -> list[int]:
    """Return the sums, limited to 64 bits even where peers reported absurd counts."""
    counts = accounting.counts()
    return [*counts] if max(counts) <= COUNT_MAX else [min(c, COUNT_MAX) for c in counts]


def _accounting(value: Any) -> SampleAccounting:  # Any: read from a file, checked here
    return SampleAccounting(*map(_count, value))


def _count(value: Any) -> int:  # Any: read from a file, checked here
    if type(value) is not int or value < 0:
        raise StampError(f"{value!r} is not a count")
    return value
