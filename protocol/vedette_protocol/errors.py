"""What can go wrong on the wire.

::

    ProtocolError             a peer's bytes or claims are not the protocol
    ├── MalformedError        frames that are no valid message
    ├── VersionError          a message of another protocol version
    ├── SchemaError           a schema, a payload or a value that does not fit
    ├── ModelError            a model that is torn, or of another spec than was agreed
    ├── AckError              an acknowledgement of what was never sent
    ├── LedgerFullError       more managers than the ledger keeps
    ├── RetiredError          an incarnation that the ledger closed long ago
    └── StampError            bytes that are no ledger
    WindowFullError           a batch was offered where there is no room: ours to avoid
"""

from typing import NamedTuple


class Sender(NamedTuple):
    """Who sent a message that could not be accepted, as far as it could be read.

    `seq` is None where the message has none (a report) or it is not legible.
    """

    manager: str
    incarnation: int
    seq: int | None


class ProtocolError(Exception):
    """A peer's bytes or claims are not the protocol.

    `sender` is known where the identity was legible. With a `seq` the batch can be acknowledged
    as rejected, so that its sender does not send it for ever; `rows` is what it said it held,
    0 where that was not legible.
    """

    def __init__(self, why: str, *, sender: Sender | None = None, rows: int = 0) -> None:
        super().__init__(why)
        self.sender = sender
        self.rows = rows


class MalformedError(ProtocolError):
    """Frames that are no valid message."""


class VersionError(ProtocolError):
    """A message of another protocol version."""

    def __init__(self, theirs: int, ours: int, *, sender: Sender | None = None) -> None:
        super().__init__(
            f"the peer speaks protocol version {theirs}, this side speaks {ours}", sender=sender
        )
        self.theirs, self.ours = theirs, ours


class SchemaError(ProtocolError):
    """A schema, a payload or a value that does not fit."""


class ModelError(ProtocolError):
    """A model that is torn, or of another spec than was agreed."""


class AckError(ProtocolError):
    """An acknowledgement of what was never sent: nothing was freed for it."""

    def __init__(self, acked: int, sent: int) -> None:
        super().__init__(
            f"the learner acknowledges sequence numbers below {acked}, only those below {sent} "
            "were ever sent"
        )
        self.acked, self.sent = acked, sent


class LedgerFullError(ProtocolError):
    """More managers at once than the ledger keeps."""

    def __init__(self, manager: str, incarnation: int, limit: int) -> None:
        super().__init__(
            f"no place in the ledger for manager {manager!r}: {limit} incarnations are alive",
            sender=Sender(manager, incarnation, None),
        )
        self.manager, self.limit = manager, limit


class RetiredError(ProtocolError):
    """An incarnation that the ledger closed long ago: its exact set is not kept any more."""

    def __init__(self, manager: str, incarnation: int) -> None:
        super().__init__(
            f"incarnation {incarnation:016x} of manager {manager!r} was replaced by several newer "
            "ones: two managers use the same id",
            sender=Sender(manager, incarnation, None),
        )
        self.manager, self.incarnation = manager, incarnation


class StampError(ProtocolError):
    """Bytes that are no ledger."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the ledger's stamp cannot be read: {why}")


class WindowFullError(Exception):
    """A batch was offered where there is no room. Ask `has_room` first, and wait for an ack."""

    def __init__(self, payload_bytes: int, held_bytes: int, max_bytes: int) -> None:
        super().__init__(
            f"no room in the window for {payload_bytes} bytes: it holds {held_bytes} of {max_bytes}"
        )
        self.payload_bytes, self.held_bytes, self.max_bytes = payload_bytes, held_bytes, max_bytes
