"""Hostile peers: they have a connection, perhaps an admitted key, and no manners."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from counting_ring import OWN  # beside this file
from honest import EPISODES, SCHEMA, pack_rows
from machine import Machine
from scenario import HostileKind, key_of

from vedette_protocol.codec import decode_control, encode
from vedette_protocol.errors import ProtocolError
from vedette_protocol.limits import COUNT_MAX, ROWS_MAX
from vedette_protocol.messages import EVALUATE, Ack, ActorReport, Batch, EvaluationReport, Report
from vedette_services.simulation.network import Frames

if TYPE_CHECKING:
    from simulated_fleet import SimulatedFleet

RUN_ID = "0123456789abcdef"
OLD_S = 3.0


class HostilePeer:
    """A peer that acts again and again; it is the `ManagerEnd` of its own connection.

    Args:
        every_s: from one act to the next, at most.
    """

    def __init__(
        self, fleet: SimulatedFleet, machine: Machine, kind: HostileKind, every_s: float
    ) -> None:
        name = machine.name
        self._fleet = fleet
        self._name = name
        self._machine = machine
        self._act = getattr(self, f"_{kind}")
        self._every_s = every_s
        self._rng = random.Random(f"{fleet.scenario.seed} {name}")
        self._incarnation = self._rng.getrandbits(64)
        self._seq = 0
        self._asked = (0, 0, 0)
        self._row = OWN + self._rng.getrandbits(20) * (1 << 30)
        machine.open(name, self)
        self._go_on()

    # The connection

    def on_connected(self) -> None:
        """It does not care."""

    def on_disconnected(self) -> None:
        """Nor here."""

    def on_control(self, frames: Frames) -> None:
        """It ignores acks, and its credit; a liar remembers what it is asked to evaluate."""
        try:
            message = decode_control(frames[1:])
        except ProtocolError:
            return  # an ack of what it has claimed
        if isinstance(message, Ack) and message.manager == self._name:
            self._asked = message.evaluate, message.epoch, message.evaluate_version

    def on_model_chunk(self, frames: Frames) -> None:
        """It plays nothing."""

    def _go_on(self) -> None:
        fleet = self._fleet
        machine = self._machine
        stays = fleet.scenario.hostile_stays and not fleet.ending
        if stays or fleet.clock.now < fleet.scenario.fault_s:
            self._act()
            gap_s = self._rng.uniform(0.0, self._every_s)
            machine.call_at(machine.now + gap_s, self._go_on)

    def _send(self, frames: Frames) -> None:
        self._machine.send_up(self._name, frames)

    # What it says

    def _batch(self, seq: int, rows: int = 0, **changed: object) -> Batch:
        rows = rows or self._fleet.scenario.actors.n_buffer
        payload = pack_rows(self._row, rows)
        self._row += rows
        return Batch(
            run_id=RUN_ID,
            manager=self._name,
            incarnation=self._incarnation,
            seq=seq,
            actor=0,
            epoch=1,
            version=0,
            schema=SCHEMA.hash,
            rows=rows,
            payload=payload,
        )._replace(**changed)

    def _report(self, **changed: object) -> Report:
        counts = dict.fromkeys(
            ("produced", "dropped", "window_batches", "window_rows", "window_bytes", "sequenced"), 0
        )
        fields = {
            "manager": self._name,
            "incarnation": self._incarnation,
            "host": "evil\n\x1b[2Jhost",
            "state": "running",
            "run_id": RUN_ID,
            **counts,
            **changed,
        }
        return Report(**fields)

    def _victim(self) -> Report | None:
        """Return an honest manager's last report, as a status shows it; None if there is none."""
        fleet = self._fleet
        known = {} if fleet.gateway is None else fleet.gateway.state.fleet._members
        reports = [known[name].report for name in fleet.hosts if name in known]
        return self._rng.choice(reports) if reports else None

    def _is_owned(self, manager: str) -> bool:
        """Return True if an id is its manager's: others could take it before that."""
        gateway = self._fleet.gateway
        entry = gateway and gateway.state.ledger._entries.get(manager)
        return bool(entry) and entry.key == key_of(manager)

    # What it does

    def _garbage(self) -> None:
        rng = self._rng
        count = rng.choice((0, 1, 1, 2, 2, 3, 7))
        self._send([rng.randbytes(rng.choice((0, 1, 40, 5000))) for _ in range(count)])

    def _mutants(self) -> None:
        """Send a valid message of its own with a few bytes changed."""
        rng = self._rng
        message = self._batch(self._seq) if rng.random() < 0.7 else self._report()
        header, *rest = encode(message)
        self._seq += 1
        changed = bytearray(header)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.getrandbits(8)
        if self._name.encode() not in changed:
            return  # it would speak for somebody else, perhaps without keys
        if rng.random() < 0.2:
            rest = [frame[: rng.randrange(len(frame) + 1)] for frame in rest]
        self._send([bytes(changed), *rest])

    def _foreign(self) -> None:
        """Speak for an honest manager; without keys that is nobody's to prevent."""
        rng = self._rng
        victim = self._victim()
        if not self._fleet.scenario.keyed or victim is None or not self._is_owned(victim.manager):
            return self._claims()
        manager = victim.manager
        incarnation = rng.choice((victim.incarnation, rng.getrandbits(64)))
        if rng.random() < 0.5:
            batch = self._batch(rng.choice((0, 1, 5, 2000)), manager=manager)
            return self._send(encode(batch._replace(incarnation=incarnation)))
        state = rng.choice(("running", "gone"))
        many = rng.choice((0, 7, COUNT_MAX - 1))
        report = self._report(
            manager=manager,
            incarnation=incarnation,
            state=state,
            produced=many,
            sequenced=many,
            base=many,
        )
        return self._send(encode(report))

    def _replay(self) -> None:
        """Send again what an honest manager sent."""
        fleet = self._fleet
        if fleet.overheard:
            at, frames = self._rng.choice(fleet.overheard)
            if fleet.scenario.keyed:  # what it cannot know is what was just sent
                replays = at < fleet.clock.now - OLD_S and all(map(self._is_owned, fleet.hosts))
            else:  # without keys, nobody can prevent that it reports for others
                replays = b"report" not in bytes(frames[0])
            if replays:
                self._send(list(frames))

    def _claims(self) -> None:
        """Claim what cannot be, under its own id."""
        rng = self._rng
        absurd = rng.choice((3, 1 << 20, 1 << 61, COUNT_MAX - 1))
        if rng.random() < 0.4:
            rows = rng.choice((ROWS_MAX, self._fleet.scenario.actors.n_buffer))
            batch = self._batch(self._seq, rows=1)._replace(rows=rows, base=self._seq)
            self._seq += rng.choice((1, 1, 1000))
            if "env_steps" in batch._fields:
                batch = batch._replace(env_steps=absurd)
            return self._send(encode(batch))
        fields = ("produced", "sequenced", "base", "limit", "window_bytes")
        fields = [f for f in fields if f in Report.__slots__]
        claimed = {name: absurd for name in fields if rng.random() < 0.6}
        claimed["sequenced"] = max(claimed.get("sequenced", 0), claimed.get("base", 0))
        if rng.random() < 0.3 and "produced" in claimed:
            claimed["window_rows"] = absurd
        return self._send(encode(self._report(**claimed)))

    def _greedy(self) -> None:
        """Send valid batches as if there were no credit."""
        for _ in range(self._rng.choice((1, 20, 100))):
            self._send(encode(self._batch(self._seq)))
            self._seq += 1
        if self._rng.random() < 0.05:
            self._incarnation = self._rng.getrandbits(64)
            self._seq = 0

    def _copy(self) -> None:
        """Use an honest manager's id, with its key, as another process of it."""
        gateway = self._fleet.gateway
        name = "m0"
        if gateway is None or not gateway.state.fleet.knows(name):
            return
        self._send(encode(self._report(manager=name)))
        self._send(encode(self._batch(self._seq, manager=name)))
        self._seq += self._rng.random() < 0.9

    def _liar(self) -> None:
        """Claim an evaluation, asked for or not, of the right version or of another."""
        rng = self._rng
        (request, epoch, version) = self._asked
        request = request if rng.random() < 0.8 else rng.getrandbits(64)
        played = rng.choice((0, 1, EPISODES, EPISODES, EPISODES + 1))
        mean = rng.choice((None, 1e12, -1.0))
        claim = EvaluationReport(
            request,
            epoch,
            version + rng.choice((0, 0, 0, 1, -1, 50)) % (1 << 40),
            played,
            mean,
            0.0,
            mean,
            mean,
            1.0,
            rng.choice((0, 7)),
            rng.choice(("", "", "no display")),
        )
        self._send(encode(self._report(evaluation=claim, features=(EVALUATE,))))

    def _reports(self) -> None:
        """Report, each time as another incarnation or under another id of its own."""
        rng = self._rng
        error = ActorReport(0, True, 0, 1, 1, 1, error="a\nb\x1b[31m" * 20)
        self._send(
            encode(
                self._report(
                    manager=f"{self._name}-{rng.randrange(50)}",
                    incarnation=rng.getrandbits(64),
                    state=rng.choice(("running", "draining", "gone")),
                    actors=(error,),
                )
            )
        )
