"""Everything that travels: a closed union of frozen messages.

Up (PUSH to PULL) go `Batch` and `Report`. Down the control channel (XPUB to SUB) come `Run`,
`Ack`, `Stop`, `Refusal` and `Status`; down the model channel comes `ModelChunk`.

Rows are transitions, or whatever the schema says a row is. Counts named `produced`, `inserted`,
`dropped` and `rejected` count rows; sequence numbers, `contiguous` and `extras` count batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from vedette_protocol.schema import Schema

Buffer: TypeAlias = bytes | bytearray | memoryview
"""A frame's bytes. Never written after they were handed over."""

Settings: TypeAlias = Mapping[str, Any]
"""JSON-able settings: maps with string keys, lists, strings, numbers, booleans, None."""

ManagerState: TypeAlias = Literal["running", "draining", "gone"]
RefusalCode: TypeAlias = Literal["version", "spec", "key", "id"]


class Batch(NamedTuple):  # made four times as fast as a frozen dataclass, thousands a second
    """Rows of one actor, in columns.

    Args:
        run_id: the run they were produced for.
        manager: the sender's id.
        incarnation: 64 random bits, new at every start of a manager and for every run it joins.
        seq: number of the batch in its incarnation, from 0, without holes.
        actor: index of the actor among its manager's.
        epoch: of the model that acted.
        version: of the model that acted (of the batch's oldest row).
        schema: hash of the schema that lays out the payload.
        rows: how many.
        payload: the columns, one after the other (`Schema.pack`).
        base: the lowest `seq` that this incarnation may still send: what is below has been
            acknowledged. A ledger that knows less (restored from an older state) catches up by it.
    """

    run_id: str
    manager: str
    incarnation: int
    seq: int
    actor: int
    epoch: int
    version: int
    schema: str
    rows: int
    payload: Buffer
    base: int = 0


@dataclass(frozen=True, slots=True)
class ActorReport:
    """How one actor does. Means are over the episodes finished since the last report, or None."""

    id: int
    alive: bool
    restarts: int
    env_steps: int
    episodes: int
    version: int
    return_mean: float | None = None
    length_mean: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """How a manager does, sent every second and at each change of state.

    Args:
        run_id: the run the counts are of; "" while the manager knows none.
        produced: rows offered to the window by this incarnation, dropped ones too.
        dropped: rows that were given up unsent, by policy or at the end.
        window_batches, window_rows, window_bytes: what the window holds, sent or not.
        sequenced: the next sequence number.
        base: the lowest one that may still be sent.
    """

    manager: str
    incarnation: int
    host: str
    state: ManagerState
    run_id: str
    produced: int
    dropped: int
    window_batches: int
    window_rows: int
    window_bytes: int
    sequenced: int
    base: int = 0
    actors: tuple[ActorReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """All that a manager needs to take part in a run.

    Args:
        epoch: the learner's starts on this run; (epoch, version) orders models.
        learner: 64 random bits, new at every start of the gateway.
        schema: of a row of a batch.
        model: of a model: one row of it.
        env, agent, actors: settings, as the configuration has them.
        seed: the run's.
    """

    run_id: str
    epoch: int
    learner: int
    schema: Schema
    model: Schema
    env: Settings
    agent: Settings
    actors: Settings
    seed: int


@dataclass(frozen=True, slots=True)
class Ack:
    """What the learner has settled of one incarnation, and what it may send: a repeated state.

    Args:
        contiguous: every sequence number below is settled (inserted or rejected).
        extras: bit map of what is settled beyond: bit ``i`` stands for ``contiguous + i``. Bit 0
            is never set.
        rejected_batches, rejected_rows: how much of what is settled was refused.
        credit_batches, credit_bytes: how much may be sent and not yet settled at any time. A
            manager with nothing outstanding may send one batch of any size while both are above 0.
        version: the learner's newest.
        first_actor: index among all actors of the run of the manager's actor 0.
        reason: why there is no credit; "" otherwise.
    """

    run_id: str
    epoch: int
    learner: int
    manager: str
    incarnation: int
    contiguous: int
    extras: int
    rejected_batches: int
    rejected_rows: int
    credit_batches: int
    credit_bytes: int
    version: int
    first_actor: int
    reason: str = ""

    @property
    def beyond(self) -> int:
        """One more than the highest sequence number that is settled."""
        return self.contiguous + self.extras.bit_length()


@dataclass(frozen=True, slots=True)
class Stop:
    """The learner stops. `final`: the run is over, managers end; else they wait for it."""

    run_id: str
    epoch: int
    reason: str
    final: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """The learner will not work with this manager, which ends with exit status 3."""

    manager: str
    incarnation: int
    code: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True)
class Status:
    """The learner's status, a JSON document, to one who asked."""

    json: bytes


@dataclass(frozen=True, slots=True)
class ModelChunk:
    """A piece of a model info.

    All pieces but the last have ``ceil(total_bytes / count)`` bytes.

    Args:
        spec: hash of the model's schema.
        digest: `vedette_protocol.model.digest_of` the whole body.
    """

    run_id: str
    epoch: int
    version: int
    spec: str
    index: int
    count: int
    total_bytes: int
    digest: bytes
    payload: Buffer


UpMessage: TypeAlias = Batch | Report
ControlMessage: TypeAlias = Run | Ack | Stop | Refusal | Status
Message: TypeAlias = UpMessage | ControlMessage | ModelChunk
