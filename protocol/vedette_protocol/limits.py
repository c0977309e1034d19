"""The limits of the wire. A decoder checks them before it allocates anything."""

from typing import Final

PROTOCOL_VERSION: Final = 2
QUESTION_VERSION: Final = 0
"""No version of the protocol: a message on the samples' port that only asks who refuses it."""

HEADER_MAX_BYTES: Final = 4096
"""Size of a header frame. Parsing takes time, so a peer must not choose it freely."""
PAYLOAD_MAX_BYTES: Final = 64 << 20
"""Size of a batch's payload frame."""
CHUNK_MAX_BYTES: Final = 1 << 20
"""Size of a model chunk's payload frame. A larger one would delay the messages behind it."""
CHUNK_MIN_BYTES: Final = 64 << 10
"""A model has at most one chunk per this many bytes, which bounds the number of chunks."""
RUN_MAX_BYTES: Final = 1 << 20
REPORT_MAX_BYTES: Final = 1 << 20
STATUS_MAX_BYTES: Final = 16 << 20
MODEL_MAX_BYTES: Final = 4 << 30

U64_MAX: Final = (1 << 64) - 1
"""Incarnations and learners: 64 random bits."""
COUNT_MAX: Final = 1 << 62
"""Sequence numbers, versions and counts: far below the overflow of signed 64-bit columns."""
EPOCH_MAX: Final = (1 << 31) - 1
ACTOR_MAX: Final = (1 << 31) - 1
ROWS_MAX: Final = 1 << 20
"""Rows of one batch."""
EXTRAS_MAX: Final = 1024
"""Range above `contiguous` in which the ledger keeps its exact set. Limits stay inside it."""
ACTORS_MAX: Final = 1024
"""Actors in one manager's report."""
FEATURES_MAX: Final = 64
"""Features that a peer lists."""

ID_MAX_CHARS: Final = 64
TEXT_MAX_CHARS: Final = 200
"""Reasons, errors and host names."""

NAME_MAX_CHARS: Final = 128
"""A column's name."""
COLUMNS_MAX: Final = 4096
DIMS_MAX: Final = 8
DEPTH_MAX: Final = 16
"""Nesting of the run message's settings."""

ACCOUNTS_MAX: Final = 4096
"""Incarnations of which the ledger keeps the exact set, at most."""
OLD_ACCOUNTS_MAX: Final = 4
"""Replaced incarnations of one manager of which the ledger keeps the exact set."""
RETIRED_MAX: Final = 1024
"""Closed incarnations that the ledger remembers."""
CLOSING_MAX: Final = 1024
"""Closed incarnations of managers with an outbox that wait for the disk with the archive."""
ARCHIVE_MAX_BYTES: Final = 1 << 30
"""Size of the archive: ten million incarnations and more."""
OUTBOX_BATCHES_MAX: Final = 1 << 32
"""Batches that an outbox is believed to hold."""
STAMP_MAX_BYTES: Final = 2 << 20
"""Size of a ledger in bytes."""
