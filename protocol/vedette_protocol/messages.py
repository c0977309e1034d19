"""The messages: a closed union of frozen classes, each declared once with its types and ranges.

Managers send `Batch` and `Report` (PUSH to PULL). The learner publishes `Run`, `Ack`, `Stop`,
`Refusal` and `Status` on the control channel and `ModelChunk` on the model channel (XPUB to SUB).

Another message is another class here and in the union of its channel at the end of this file, and
a case in the `match` that handles it. It is sent to peers that list its feature in `FEATURES`:
those of earlier releases refuse a kind that they do not know.

Rows are transitions, or whatever the schema says a row is. `produced`, `inserted`, `dropped` and
`rejected` count rows; sequence numbers, `contiguous` and `extras` count batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from vedette_protocol.errors import MalformedError, SchemaError
from vedette_protocol.limits import (
    ACTOR_MAX,
    ACTORS_MAX,
    CHUNK_MAX_BYTES,
    CHUNK_MIN_BYTES,
    COUNT_MAX,
    EXTRAS_MAX,
    FEATURES_MAX,
    MODEL_MAX_BYTES,
    PAYLOAD_MAX_BYTES,
    REPORT_MAX_BYTES,
    ROWS_MAX,
    RUN_MAX_BYTES,
    STATUS_MAX_BYTES,
)
from vedette_protocol.packing import Buffer as Buffer
from vedette_protocol.schema import Schema
from vedette_protocol.wire import (
    U64,
    Count,
    Epoch,
    Hash,
    Id,
    Mean,
    OptionalCount,
    OptionalId,
    RawPayload,
    Text,
    WireType,
    binary,
    bit_map,
    ids,
    integer,
    list_of,
    message,
    optional_map,
)
from vedette_protocol.wire import Settings as Settings

ReportedState: TypeAlias = Literal["running", "draining", "gone"]

EVALUATE: Final = "evaluate"
"""The feature of a manager that plays evaluations, and of a run that may ask for them."""

CONFIRM: Final = "confirm"
"""The feature of a manager that plays the model of its last evaluation again, on fresh episodes."""

OUTBOX: Final = "outbox"
"""The feature of a manager that keeps batches in files until they are safe, and of a run whose
learner says what is safe."""

FEATURES: Final[tuple[str, ...]] = (EVALUATE, OUTBOX)
"""What this side can do beyond version 2. A side uses only what the other one lists, too."""

NO_PLACE: Final = "place"
"""The code of a refusal that passes: the learner has no place for this manager now."""

ActorIndex: TypeAlias = Annotated[int, integer(0, ACTOR_MAX)]
Features: TypeAlias = Annotated[tuple[str, ...], ids(FEATURES_MAX)]
WireSchema: TypeAlias = Annotated[
    Schema, WireType(lambda _: True, "a schema", Schema.to_wire, Schema.from_wire)
]


@message(
    "batch",
    "samples",
    header="run_id manager incarnation seq base actor epoch version env_steps schema rows",
    strict=True,
)
class Batch(NamedTuple):  # made four times as fast as a frozen dataclass, thousands a second
    """Rows of one actor, in columns.

    Args:
        run_id: the run of these rows.
        manager: the sender's id.
        incarnation: 64 random bits, new at every start of a manager and for every run it joins.
        seq: number of the batch in its incarnation, from 0, without gaps.
        actor: index of the actor among its manager's.
        epoch: the epoch of the model that acted.
        version: the version of the model that acted (of the batch's oldest row).
        schema: hash of the payload's schema.
        rows: number of rows.
        payload: the columns, one after the other (`Schema.pack`).
        base: the lowest `seq` that this incarnation may still send. All below were acknowledged,
            also those that a ledger restored from an older state does not have.
        env_steps: environment steps that the actor made since its last batch.
    """

    run_id: Id
    manager: Id
    incarnation: U64
    seq: Annotated[int, integer(0, COUNT_MAX - 1)]
    actor: ActorIndex
    epoch: Epoch
    version: Count
    schema: Hash
    rows: Annotated[int, integer(1, ROWS_MAX)]
    payload: Annotated[Buffer, RawPayload(1, PAYLOAD_MAX_BYTES)]
    base: Annotated[int, integer(0, COUNT_MAX - 1)] = 0
    env_steps: Count = 0

    def check(self) -> None:
        """Refuse a number below `base`."""
        if self.base > self.seq:
            raise MalformedError(f"the batch's 'base' {self.base} is above its 'seq' {self.seq}")


@dataclass(frozen=True, slots=True)
class ActorReport:
    """State of one actor.

    Args:
        return_mean, length_mean: of some of its last episodes, as many as the sender likes; None
            before the first has ended.
        returns: its episodes whose returns are in `return_sum`: those with a finite one.
        return_sum: of the manager's start, as all counts are; None: not said.
    """

    id: ActorIndex
    alive: bool
    restarts: Count
    env_steps: Count
    episodes: Count
    version: Count
    return_mean: Mean = None
    length_mean: Mean = None
    error: Text = ""
    returns: Count = 0
    return_sum: Mean = None


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """An evaluation that the learner asked for. The results are None until all its episodes ended.

    Args:
        request: the number in the ack that asked.
        epoch, version: those of the model that is played.
        episodes: the episodes that have ended.
        cut: the number of them that were cut at the run's `max_episode_steps`.
        failed: why it was given up, or "".
    """

    request: U64
    epoch: Epoch
    version: Count
    episodes: Count = 0
    return_mean: Mean = None
    return_std: Mean = None
    return_min: Mean = None
    return_max: Mean = None
    length_mean: Mean = None
    cut: Count = 0
    failed: Text = ""


@message(
    "report",
    "samples",
    header="manager incarnation",
    map_max=REPORT_MAX_BYTES,
    omitted="evaluation delay_s failures ended memory_rows",
)
@dataclass(frozen=True, slots=True)
class Report:
    """State of a manager, sent twice a second and at each change of state, less often without acks.

    Args:
        run_id: the run of the counts; "" while the manager has none.
        produced: rows that this incarnation added to the window, including dropped ones.
        dropped: rows that were discarded before they were sent, by policy or at the end.
        window_batches, window_rows, window_bytes: contents of the window, sent or not.
        sequenced: the next sequence number.
        base: the lowest sequence number that may still be sent.
        limit: the highest limit of an ack to this incarnation.
        features: this manager's abilities beyond version 2.
        evaluation: the one that the newest ack asks for; None: none was begun.
        delay_s: the age of the oldest batch in the window; None: not said.
        failures: of single environments, which were made again; a part of their episodes is lost.
        ended: nobody numbers batches of this incarnation further: they are sent from an outbox.
        memory_rows: rows of the manager that its outbox could not write: they are in memory alone.
    """

    manager: Id
    incarnation: U64
    host: Text
    state: ReportedState
    run_id: OptionalId
    produced: Count
    dropped: Count
    window_batches: Count
    window_rows: Count
    window_bytes: Count
    sequenced: Count
    base: Count = 0
    actors: Annotated[
        tuple[ActorReport, ...],
        list_of(ActorReport, ACTORS_MAX, "actors", omitted=("returns", "return_sum")),
    ] = ()
    limit: Count = 0
    features: Features = ()
    evaluation: Annotated[EvaluationReport | None, optional_map(EvaluationReport, "evaluation")] = (
        None
    )
    delay_s: Mean = None
    failures: Count = 0
    ended: bool = False
    memory_rows: Count = 0

    def check(self) -> None:
        """Refuse counts that contradict one another."""
        if self.base > self.sequenced:
            raise MalformedError(
                f"the report's 'base' {self.base} is above its 'sequenced' {self.sequenced}"
            )
        if self.dropped + self.window_rows > self.produced:
            raise MalformedError("the manager has dropped and holds more rows than it produced")


@message(
    "run",
    "control",
    header="run_id epoch learner seed",
    map_max=RUN_MAX_BYTES,
    derived="schema_hash model_hash",
    omitted="evaluation",
)
@dataclass(frozen=True, slots=True)
class Run:
    """The run, as a manager needs it to take part.

    Args:
        epoch: number of the learner's starts on this run; (epoch, version) orders models.
        learner: 64 random bits, new at every start of the gateway.
        schema: the schema of a batch's rows.
        model: schema of a model, which is one row.
        env, agent, actors: sections of the configuration.
        seed: the run's seed.
        batch_rows, batch_env_steps: the most that a batch may have; a batch with more is rejected.
        policy: describes the network and how to act by it, for clients that do not build the agent;
            empty where that cannot be described.
        evaluation: the settings of evaluations that managers play; empty: they are not asked to.
    """

    run_id: Id
    epoch: Epoch
    learner: U64
    schema: WireSchema
    model: WireSchema
    env: Settings
    agent: Settings
    actors: Settings
    seed: U64
    batch_rows: Annotated[int, integer(1, ROWS_MAX)]
    batch_env_steps: Count
    features: Features = FEATURES
    policy: Settings = field(default_factory=dict)
    evaluation: Settings = field(default_factory=dict)

    @property
    def schema_hash(self) -> str:
        """The hash of `schema`, for clients that do not compute it."""
        return self.schema.hash

    @property
    def model_hash(self) -> str:
        """The hash of `model`."""
        return self.model.hash

    def check(self) -> None:
        """Refuse a model with a shared column."""
        if self.model.sharing is not None:
            raise SchemaError("a model has no shared column")


@message("ack", "control", omitted="evaluate evaluate_version evaluate_fresh safe runs")
@dataclass(frozen=True, slots=True)
class Ack:
    """State of one incarnation at the learner, sent again and again: settled batches and limit.

    Args:
        contiguous: every sequence number below it is settled (inserted or rejected).
        extras: bit map of the settled numbers above: bit ``i`` stands for ``contiguous + i``. Bit 0
            is never set.
        rejected_batches, rejected_rows: number of the settled ones that were rejected.
        limit: sequence numbers below it may be sent. A smaller one than before takes nothing back.
        version: the version of the learner's newest model.
        first_actor: index of the manager's actor 0 among all actors of the run.
        reason: why the limit does not grow; "" otherwise.
        rejected_reason: why the last batch that was rejected was; "" if none was.
        evaluate: the number of an evaluation that this manager is to play; 0: of none.
        evaluate_version: it plays a model of this version or a newer one.
        evaluate_fresh: other than 0: it plays the model of the evaluation before, which has this
            version, on other episodes than those of any other number.
        safe: every sequence number below it is safe: settled, and on the learner's disk since its
            last sync. None: not said.
        runs: runs that each of the manager's actors may play on the model `version`, and none on an
            older one; 0: any.
    """

    run_id: OptionalId
    epoch: Epoch
    learner: U64
    manager: Id
    incarnation: U64
    contiguous: Count
    extras: Annotated[int, bit_map(EXTRAS_MAX)]
    rejected_batches: Count
    rejected_rows: Count
    limit: Count
    version: Count
    first_actor: ActorIndex
    reason: Text = ""
    rejected_reason: Text = ""
    evaluate: U64 = 0
    evaluate_version: Count = 0
    evaluate_fresh: Count = 0
    safe: OptionalCount = None
    runs: Count = 0

    @property
    def beyond(self) -> int:
        """The highest settled sequence number plus one."""
        return self.contiguous + self.extras.bit_length()

    def check(self) -> None:
        """Refuse a bit that contradicts `contiguous`."""
        if self.extras & 1:
            raise MalformedError("the ack's 'extras' has bit 0 set, against 'contiguous'")


@message("stop", "control", header="run_id epoch final reason")
@dataclass(frozen=True, slots=True)
class Stop:
    """The learner stops. If `final`, the run is over and managers exit; else they wait for it."""

    run_id: Id
    epoch: Epoch
    reason: Text
    final: bool


@message("refusal", "control")
@dataclass(frozen=True, slots=True)
class Refusal:
    """The learner refuses this manager, which ends.

    Args:
        code: ``version`` or ``id``, for good; or ``place``, so that it may start again. A manager
            ends whatever it is.
    """

    manager: Id
    incarnation: U64
    code: Id
    reason: Text


@message("status", "control")
@dataclass(frozen=True, slots=True)
class Status:
    """The learner's status as a JSON document, sent on request."""

    json: Annotated[bytes, RawPayload(0, STATUS_MAX_BYTES, copy=True)]


@message("model", "models", strict=True)
@dataclass(frozen=True, slots=True)
class ModelChunk:
    """One of `count` chunks of a model's body.

    All chunks but the last have ``ceil(total_bytes / count)`` bytes.

    Args:
        spec: hash of the model's schema.
        digest: the digest of the whole body (`vedette_protocol.model.digest_of`).
    """

    run_id: Id
    epoch: Epoch
    version: Count
    spec: Hash
    index: Count
    count: Annotated[int, integer(1, MODEL_MAX_BYTES)]
    total_bytes: Annotated[int, integer(1, MODEL_MAX_BYTES)]
    digest: Annotated[bytes, binary(8, 8)]
    payload: Annotated[Buffer, RawPayload(1, CHUNK_MAX_BYTES)]

    def check(self) -> None:
        """Refuse a chunk whose length does not follow from its index."""
        index = self.index
        count = self.count
        total_bytes = self.total_bytes
        chunk_bytes = -(-total_bytes // count)
        expected = min(chunk_bytes, total_bytes - index * chunk_bytes)
        if count > -(-total_bytes // CHUNK_MIN_BYTES) or index >= count or expected < 1:
            raise MalformedError(f"a model of {total_bytes} bytes has no chunk {index} of {count}")
        if len(self.payload) != expected:
            raise MalformedError(
                f"chunk {index} of {count} of {total_bytes} bytes has {len(self.payload)}, "
                f"expected {expected}"
            )


UpMessage: TypeAlias = Batch | Report
ControlMessage: TypeAlias = Run | Ack | Stop | Refusal | Status
Message: TypeAlias = UpMessage | ControlMessage | ModelChunk
