"""The rules of the wire that a client keeps, a watcher of what it sends, and the sockets for it.

`Watcher` checks what always holds. What only a certain event shows, `vedette.conformance` plays.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from vedette_protocol import topics
from vedette_protocol.codec import decode_control, decode_up, encode
from vedette_protocol.errors import ProtocolError
from vedette_protocol.messages import Ack, Batch, Report, Run
from vedette_services.net.addresses import Address
from vedette_services.simulation.network import Channel, Frames, SocketNetwork

Verdict = Literal["kept", "broken", "not seen"]

RULES = {
    "join": "subscribes to all and m/ID/ on control and models, and reports",
    "report first": "reports on a connection before it sends a batch",
    "ack first": "sends no batch on a connection before an ack to its incarnation",
    "credit": "sends no batch at or above the highest limit",
    "credit zero": "sends nothing, and goes on reporting, while no number was granted",
    "numbers": "numbers batches from 0 without gaps, in the order of their first sending",
    "base": "every number below base is settled",
    "rows": "batches are of the run, within its limits, and their values are valid",
    "same batch": "a number sent again is the same batch",
    "settled": "what an ack settled is not sent again",
    "reports": "reports at least every 1.5 s",
    "accounting": "dropped + window_rows <= produced; limit is the highest of the acks",
    "lost acks": "without acks it neither sends again nor reconnects",
    "stalled": "sends again, within 5 s of acks, what was sent 5 s before and is not settled",
    "older ack": "an ack with less than before takes no credit back and settles nothing",
    "foreign ack": "ignores acks of another incarnation or run, and of a lower epoch",
    "wrong ack": "an ack of a number that was never sent settles nothing",
    "new epoch": "sends all that is not settled again, at once and in order, for a new epoch",
    "newest model": "acts on the newest model",
    "wrong models": "acts on no model that is older, damaged, too large, not finite or of other "
    "arrays",
    "unknown keys": "ignores unknown keys of run and ack, and unknown features",
    "learner killed": "comes back with its incarnation and its limit, and loses no batch",
    "silence": "makes new connections after 3 s without a control message",
    "stop": "waits for the learner after a stop that is not final",
    "another run": "begins another run with a new incarnation and numbers from 0",
    "end": "at the run's end sends its window, reports gone and ends with status 0",
    "over": "ends where the run is over before it joined",
    "refusal": "ends after a refusal, with a status other than 0, and sends nothing more",
}
"""Each rule, in words; protocol/README.md has the whole."""

SLACK_S = 1.5
"""A message may be on its way, and a machine busy, for so long."""

_REPORTS_S = 1.5


@dataclass(slots=True)
class Findings:
    """What was found of each rule; once broken, a rule stays so."""

    verdicts: dict[str, tuple[Verdict, str]] = field(
        default_factory=lambda: dict.fromkeys(RULES, ("not seen", ""))
    )

    def note(self, rule: str, kept: bool, came: str = "") -> None:
        """Note what came of a rule."""
        if self.verdicts[rule][0] != "broken":
            self.verdicts[rule] = ("kept" if kept else "broken", came)

    def broke(self, rule: str, came: str) -> None:
        """Note a rule that was broken."""
        self.note(rule, False, came)

    @property
    def broken(self) -> list[str]:
        """The rules that were broken."""
        return [rule for rule, (verdict, _) in self.verdicts.items() if verdict == "broken"]

    def lines(self) -> Iterator[str]:
        """Format a line a rule: what was expected, and what came."""
        for rule, (verdict, came) in self.verdicts.items():
            shown = f"; came: {came}" if came and verdict == "broken" else ""
            yield f"{verdict:<9} {rule}: {RULES[rule]}{shown}"


class Watcher:
    """Checks what a client must keep at any time. `now` is in seconds."""

    run: Run
    """The run that was announced last."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.manager, self.incarnation = "", -1
        self.joined: set[tuple[str, bytes]] = set()
        self.report: Report | None = None
        self.batches: dict[int, bytes] = {}  # by number, a digest
        self.versions: list[tuple[int, int]] = []  # of the batches, in order
        self.again: list[int] = []  # numbers sent again, in order
        self.limit = 0
        self.settled: dict[int, float] = {}  # when it was first acknowledged
        self.contiguous = 0
        self.subscribed = False
        """It hears what is for it on control."""
        self._reported = self._acked = False  # on this connection
        self._reported_at = 0.0

    def on_new_connection(self) -> None:
        """The learner's sockets are new."""
        self._reported = self._acked = self.subscribed = False
        self._reported_at = 0.0

    def on_subscription(self, channel: str, event: bytes) -> None:
        """Note what the client subscribes to."""
        if event[:1] == b"\1":
            self.joined.add((channel, event[1:]))
            if event[1:].startswith(b"m/"):
                self.manager = event[3:-1].decode()
        if channel == "control" and event[1:].startswith(b"m/"):
            self.subscribed = event[:1] == b"\1"
        if not self.manager or self.report is None:
            return
        own = topics.manager_topic(self.manager)
        wanted = {(channel, t) for channel in ("control", "models") for t in (topics.ALL, own)}
        if wanted <= self.joined:
            self.findings.note("join", True)

    def on_ack(self, ack: Ack, now: float) -> None:
        """Note an ack that was sent to it."""
        if (ack.manager, ack.incarnation) != (self.manager, self.incarnation):
            return
        if not self.subscribed:
            return  # it does not hear that
        if ack.run_id != self.run.run_id or ack.epoch < self.run.epoch:
            return
        self._acked = True
        if ack.beyond > len(self.batches):
            return  # it settles a number that was never sent, and so nothing
        self.limit = max(self.limit, ack.limit)
        for number in range(self.contiguous, ack.beyond):
            if number < ack.contiguous or ack.extras >> (number - ack.contiguous) & 1:
                self.settled.setdefault(number, now)
        while self.contiguous in self.settled:
            self.contiguous += 1

    def on_up(self, frames: Sequence[bytes], now: float) -> Batch | Report | None:
        """Check a message of the client; None: it is none."""
        try:
            message = decode_up(frames)
        except ProtocolError as error:
            self.findings.broke("rows", f"not a message: {error}")
            return None
        if message.incarnation != self.incarnation:
            self._begin(message.incarnation)
        if isinstance(message, Report):
            self._on_report(message, now)
        else:
            self._on_batch(message, now)
        return message

    def _begin(self, incarnation: int) -> None:
        self.incarnation, self.limit, self.contiguous = incarnation, 0, 0
        self.batches, self.settled, self.again, self.versions = {}, {}, [], []

    def _on_report(self, report: Report, now: float) -> None:
        note = self.findings.note
        self.report, self._reported = report, True
        self.on_subscription("", b"")
        late_s = now - self._reported_at if self._reported_at else 0.0
        note("reports", late_s <= _REPORTS_S + SLACK_S, f"{late_s:.1f} s between two reports")
        self._reported_at = now if report.state == "running" else 0.0
        counted = report.dropped + report.window_rows <= report.produced
        sound = report.base <= report.sequenced and report.limit <= self.limit
        said = f"produced {report.produced}, dropped {report.dropped}, window {report.window_rows}"
        note("accounting", counted and sound, f"{said}, limit {report.limit} of {self.limit}")

    def _on_batch(self, batch: Batch, now: float) -> None:
        note, seq = self.findings.note, batch.seq
        note("report first", self._reported, f"batch {seq}")
        note("ack first", self._acked, f"batch {seq}")
        note("credit", seq < self.limit, f"batch {seq}, limit {self.limit}")
        lowest = self.contiguous
        note("base", batch.base <= lowest, f"base {batch.base}, {lowest} is not settled")
        self._check_rows(batch)
        content = (batch.rows, batch.epoch, batch.version, batch.env_steps, bytes(batch.payload))
        digest = hashlib.blake2b(repr(content).encode(), digest_size=16).digest()
        if seq in self.batches:
            self.again.append(seq)
            note("same batch", self.batches[seq] == digest, f"batch {seq}")
            old = seq in self.settled and now - self.settled[seq] > SLACK_S
            note("settled", not old, f"batch {seq}")
        else:
            expected = len(self.batches)
            note("numbers", seq == expected, f"batch {seq}, expected {expected}")
            self.batches[seq] = digest
            self.versions.append((batch.epoch, batch.version))

    def _check_rows(self, batch: Batch) -> None:
        run, why = self.run, ""
        if batch.run_id != run.run_id:
            return  # of the run before, which had not ended for it
        if batch.schema != run.schema.hash:
            why = f"batch {batch.seq} is of schema {batch.schema}"
        elif batch.rows > run.batch_rows or batch.env_steps > run.batch_env_steps:
            why = f"batch {batch.seq} has {batch.rows} rows and {batch.env_steps} steps"
        else:
            try:
                run.schema.check_values(run.schema.views(batch.payload, batch.rows))
            except ProtocolError as error:
                why = f"batch {batch.seq}: {error}"
        self.findings.note("rows", not why, why)


class ScriptedNetwork(SocketNetwork):
    """Sockets of a learner on which a script loses batches, and holds back acks and credit."""

    def __init__(self, address: Address, watcher: Watcher) -> None:
        super().__init__(address)
        self.watcher = watcher
        self.most = 0
        """The limit of an ack, at most."""
        self.holds_acks = False
        self.lost: set[int] = set()
        """Batches that the learner does not get, when they come."""
        self.last_ack: Ack | None = None
        self.connections = 0
        """Times that the client subscribed to its own topic on control."""

    def on_message(self, channel: Channel, frames: Sequence[bytes]) -> None:
        now = time.monotonic()
        if channel != "samples":
            self.watcher.on_subscription(channel, frames[0])
            self.connections += channel == "control" and frames[0].startswith(b"\1m/")
        else:
            message = self.watcher.on_up(frames, now)
            if isinstance(message, Batch) and message.seq in self.lost:
                return
        super().on_message(channel, frames)

    def publish(self, channel: Channel, frames: Frames) -> None:
        """Send a message; an ack with the credit that the script gives."""
        message = decode_control(frames[1:]) if channel == "control" else None
        if not isinstance(message, Ack):
            super().publish(channel, frames)
        elif not self.holds_acks:
            self.send_ack(replace(message, limit=min(message.limit, self.most)))

    def send_ack(self, ack: Ack) -> None:
        """Send an ack to the client."""
        self.watcher.on_ack(ack, time.monotonic())
        if ack.manager == self.watcher.manager and ack.incarnation == self.watcher.incarnation:
            self.last_ack = ack
        self.send("control", topics.manager_topic(ack.manager), ack)

    def send(self, channel: Channel, topic: bytes, message: Any) -> None:
        """Send a message."""
        super().publish(channel, [topic, *encode(message)])

    def send_frames(self, frames: Frames) -> None:
        """Send frames on control, whatever they are."""
        super().publish("control", frames)
