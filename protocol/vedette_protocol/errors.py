"""Errors of the wire.

::

    ProtocolError             a peer's bytes or claims violate the protocol
    ├── MalformedError        frames that are not a valid message
    ├── VersionError          a message of another protocol version
    ├── SchemaError           an invalid schema, or a payload or value that does not fit its schema
    ├── ModelError            a damaged model, or a model of another spec than agreed
    ├── AckError              an ack of batches that were never sent
    ├── LedgerFullError       more managers at once than the ledger keeps
    ├── RetiredError          a message of an incarnation that the ledger has closed
    └── StampError            bytes that are not a ledger
        └── LedgerFormatError     a ledger of another format
    WindowFullError           a batch was added to a full window: an error of the caller
"""

from typing import NamedTuple


class Sender(NamedTuple):
    """The sender of a refused message.

    `seq` is None where the message has none (a report) or an invalid one.
    """

    manager: str
    incarnation: int
    seq: int | None


class ProtocolError(Exception):
    """A peer's bytes or claims violate the protocol.

    `sender` is set where the header has a valid identity. With a `seq` the batch can be settled as
    rejected, so that its sender does not repeat it for ever. `rows` is the batch's own claim, 0
    where it is invalid.
    """

    def __init__(self, why: str, *, sender: Sender | None = None) -> None:
        super().__init__(why)
        self.sender = sender
        self.rows = 0


class MalformedError(ProtocolError):
    """Frames that are not a valid message."""


class VersionError(ProtocolError):
    """A message of another protocol version."""

    def __init__(self, theirs: int, ours: int) -> None:
        super().__init__(
            f"the peer speaks protocol version {theirs}, this side speaks {ours}: install the same "
            "release of vedette on both"
        )
        self.theirs, self.ours = theirs, ours


class SchemaError(ProtocolError):
    """An invalid schema, or a payload or value that does not fit its schema."""


class ModelError(ProtocolError):
    """A damaged model, or a model of another spec than agreed."""


class AckError(ProtocolError):
    """An ack of batches that were never sent. The window ignores it."""

    def __init__(self, acked: int, sent: int) -> None:
        super().__init__(
            f"the learner acknowledges sequence numbers below {acked}, but only those below {sent} "
            "were ever sent"
        )
        self.acked = acked
        self.sent = sent


class LedgerFullError(ProtocolError):
    """More managers at once than the ledger keeps."""

    def __init__(self, manager: str, incarnation: int, limit: int) -> None:
        super().__init__(
            f"the ledger is full: there is no place for manager {manager!r}, all {limit} are taken "
            "by living managers or reserved for other keys; raise learner.max_managers",
            sender=Sender(manager, incarnation, None),
        )
        self.manager = manager
        self.limit = limit


class ArchiveFullError(LedgerFullError):
    """No account can be closed, so none can be opened: closed ones are not to be forgotten."""

    def __init__(self, manager: str, incarnation: int, size: int) -> None:
        ProtocolError.__init__(
            self,
            f"there is no place for manager {manager!r}: closed incarnations of managers with an "
            f"outbox cannot be moved to the replay's archive, which has {size:,} bytes: check the "
            "room of its disk; a full archive ends with the run",
            sender=Sender(manager, incarnation, None),
        )
        self.manager = manager
        self.limit = size


class RetiredError(ProtocolError):
    """A message of an incarnation that the ledger has closed: its exact set is not kept.

    Args:
        replaced: True if its manager has newer incarnations.
    """

    def __init__(self, manager: str, incarnation: int, *, replaced: bool) -> None:
        why = (
            "was replaced by newer ones: two managers use the same id; give each its own --id"
            if replaced
            else "was silent while other managers needed its place; start the manager again"
        )
        super().__init__(
            f"incarnation {incarnation:016x} of manager {manager!r} {why}",
            sender=Sender(manager, incarnation, None),
        )
        self.manager = manager
        self.incarnation = incarnation
        self.replaced = replaced


class StampError(ProtocolError):
    """Bytes that are not a ledger."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the ledger cannot be read: {why}")


class LedgerFormatError(StampError):
    """A ledger of another format.

    Args:
        found, ours: the format that it names, and the one that is read here.
    """

    def __init__(self, found: object, ours: int) -> None:
        super().__init__(f"its format is {found!r}, expected {ours}")
        self.found = found
        self.ours = ours


class WindowFullError(Exception):
    """A batch was added to a full window. Call `has_room` first, and wait for an ack."""

    def __init__(self, payload_bytes: int, held_bytes: int, max_bytes: int) -> None:
        super().__init__(
            f"no room in the window for {payload_bytes} bytes: it holds {held_bytes} of {max_bytes}"
        )
        self.payload_bytes = payload_bytes
        self.held_bytes = held_bytes
        self.max_bytes = max_bytes
