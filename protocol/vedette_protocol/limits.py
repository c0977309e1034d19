"""The finite limits of the wire. A decoder checks them before it builds or allocates anything."""

from typing import Final

PROTOCOL_VERSION: Final = 1

HEADER_MAX_BYTES: Final = 4096
"""A header frame. Parsing a larger one would let a peer spend our time with a few bytes of his."""
PAYLOAD_MAX_BYTES: Final = 64 << 20
"""A batch's payload frame."""
CHUNK_MAX_BYTES: Final = 1 << 20
"""A model chunk's payload frame: a larger one delays what is queued behind it."""
CHUNK_MIN_BYTES: Final = 64 << 10
"""A model has at most one chunk for each of these, so that its bookkeeping stays small."""
RUN_MAX_BYTES: Final = 1 << 20
REPORT_MAX_BYTES: Final = 1 << 20
STATUS_MAX_BYTES: Final = 16 << 20
MODEL_MAX_BYTES: Final = 4 << 30

U64_MAX: Final = (1 << 64) - 1
"""Incarnations and learners: 64 random bits."""
COUNT_MAX: Final = 1 << 62
"""Sequence numbers, versions and every count: far from where signed 64-bit columns overflow."""
EPOCH_MAX: Final = (1 << 31) - 1
ACTOR_MAX: Final = (1 << 31) - 1
ROWS_MAX: Final = 1 << 20
"""Rows of one batch."""
EXTRAS_MAX: Final = 1024
"""How far beyond `contiguous` the ledger keeps its exact set. A sender goes no further."""
ACTORS_MAX: Final = 1024
"""Actors in one manager's report."""

ID_MAX_CHARS: Final = 64
TEXT_MAX_CHARS: Final = 200
"""Reasons, errors and host names."""

NAME_MAX_CHARS: Final = 128
"""A column's name."""
COLUMNS_MAX: Final = 4096
DIMS_MAX: Final = 8
DEPTH_MAX: Final = 16
"""How deep the run message's settings may nest."""

ACCOUNTS_MAX: Final = 1024
"""Incarnations that the ledger keeps exactly."""
OLD_ACCOUNTS_MAX: Final = 4
"""Replaced incarnations of one manager that the ledger keeps exactly."""
RETIRED_MAX: Final = 1024
"""Incarnations of which the ledger still knows that it has closed them."""
STAMP_MAX_BYTES: Final = 512 << 10
"""The largest ledger."""
