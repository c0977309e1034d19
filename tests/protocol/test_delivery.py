"""Window, ledger and credit together, over a channel that does everything a channel may do."""

from __future__ import annotations

import random
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from vedette_protocol.codec import decode_control, decode_up, encode
from vedette_protocol.errors import RetiredError
from vedette_protocol.ledger import Ledger
from vedette_protocol.messages import Ack, Batch, Buffer, Report
from vedette_protocol.send_window import OnFull, Window

RUN = "run"
SCHEMA = "0123456789abcdef"
MAX_BATCHES = 6
MAX_BYTES = 600
REACH = 8  # instead of 1024, so that the end of the exact set is met
MANAGERS = ("a", "b")


class Manager:
    """A manager with its window, its lines to and from the learner, and what it has produced."""

    def __init__(self, name: str, on_full: OnFull, incarnation: int) -> None:
        self.name = name
        self.on_full = on_full
        self.up: list[list[Buffer]] = []
        self.down: list[list[Buffer]] = []
        self.start(incarnation)

    def start(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.held: dict[
            bytes, int
        ] = {}  # payload to rows: offered by this incarnation, not dropped
        self.window = Window(
            self.name,
            incarnation,
            RUN,
            SCHEMA,
            max_batches=MAX_BATCHES,
            max_bytes=MAX_BYTES,
            on_full=self.on_full,
        )


class Learner:
    """A gateway: a ring and its ledger, and what of them was committed."""

    def __init__(self) -> None:
        self.epoch = 1
        self.learner = 1000
        self.looks_later = False  # else what is bad is known to be so before it is taken
        self.ring: list[tuple[bytes, int]] = []
        self.ledger = Ledger(RUN)
        self.duplicates = 0
        self.commits = [(0, 0, self.ledger.to_bytes())]

    def receive(self, frames: list[Buffer], now: float) -> None:
        message = decode_up(frames)
        try:
            if isinstance(message, Report):
                self.ledger.on_report(message, now, claims_max=REACH)
                return
            self.enter(message, now)
        except RetiredError:
            return

    def enter(self, batch: Batch, now: float) -> None:
        payload = bytes(batch.payload)
        bad = payload.startswith(b"bad")
        if bad and not self.looks_later:
            key = (batch.manager, batch.incarnation, batch.seq)
            self.ledger.settle_rejected(*key, batch.rows, now)
            return
        if not self.ledger.has_account(batch.manager, batch.incarnation):
            self.ledger.mark_alive(batch.manager, batch.incarnation, now)
        verdict = self.ledger.record_batch(batch, now)
        self.duplicates += batch.rows * (verdict == "duplicate")
        if verdict == "new" and bad:
            self.ledger.reject_batch(batch)
        elif verdict == "new":
            self.ring.append((payload, batch.rows))

    def commit(self) -> None:
        self.commits.append((len(self.ring), self.duplicates, self.ledger.to_bytes()))

    def restart(self, now: float, *, back: int, new_epoch: bool) -> None:
        del self.commits[max(1, len(self.commits) - back) :]
        length, self.duplicates, stamp = self.commits[-1]
        del self.ring[length:]
        self.ledger = Ledger.from_bytes(stamp, now)
        self.learner += 1
        self.epoch += new_epoch

    def ack(self, manager: Manager, budget: int, paused: str) -> list[Buffer]:
        if not paused and self.ledger.has_account(manager.name, manager.incarnation):
            account = self.ledger.account(manager.name, manager.incarnation)
            account.grant(max(1, budget // len(MANAGERS)))
        ack = self.ledger.make_ack(
            manager.name,
            manager.incarnation,
            epoch=self.epoch,
            learner=self.learner,
            version=0,
            first_actor=0,
            reason=paused,
        )
        return encode(ack)


class Delivery(RuleBasedStateMachine):
    @initialize(on_full=st.sampled_from(["block", "drop_oldest"]), looks_later=st.booleans())
    def begin(self, on_full: OnFull, looks_later: bool) -> None:
        self.patches = [
            mock.patch("vedette_protocol.account.EXTRAS_MAX", REACH),
        ]
        for patch in self.patches:
            patch.start()
        self.now = 0.0
        self.made = 0
        self.incarnations = 0
        self.rolled_back = False
        self.learner = Learner()
        self.learner.looks_later = looks_later
        self.managers = {name: Manager(name, on_full, self.fresh()) for name in MANAGERS}
        for manager in self.managers.values():
            self.report(manager.name)
            self.all_arrive(manager.name)
            self.receive_ack(manager, self.learner.ack(manager, 2 * MAX_BATCHES, ""))

    def fresh(self) -> int:
        self.incarnations += 1
        return self.incarnations

    def offer(self, manager: Manager, rows: int, size: int, good: bool) -> None:
        payload = f"{'good' if good else 'bad'}{self.made:08d}".encode().ljust(size, b".")
        if manager.on_full == "block" and not manager.window.has_room(size):
            return
        self.made += 1
        manager.held[payload] = rows
        manager.window.add_batch(0, 1, 0, rows, payload)

    def receive_ack(self, manager: Manager, frames: list[Buffer]) -> None:
        ack = decode_control(frames)
        assert isinstance(ack, Ack)
        manager.window.on_ack(ack, self.now)

    name = st.sampled_from(MANAGERS)
    place = st.integers(0, 7)

    @rule(name=name, rows=st.integers(1, 5), size=st.integers(16, 200), good=st.integers(0, 5))
    def produce(self, name: str, rows: int, size: int, good: int) -> None:
        self.offer(self.managers[name], rows, size, good > 0)

    @rule(name=name, limit=st.integers(1, 8), taken=st.integers(0, 8))
    def send(self, name: str, limit: int, taken: int) -> None:
        manager = self.managers[name]
        batches = manager.window.next_batches(self.now, limit)
        manager.up += [encode(batch) for batch in batches[:taken]]
        manager.window.put_back(batches[taken:])

    @rule(name=name, sizes=st.lists(st.integers(16, 90), min_size=1, max_size=6))
    def produce_and_send(self, name: str, sizes: list[int]) -> None:
        for size in sizes:
            self.offer(self.managers[name], 2, size, good=True)
        self.send(name, limit=8, taken=8)

    @rule(name=name, rounds=st.integers(1, 12))
    def nothing_goes_wrong(self, name: str, rounds: int) -> None:
        manager = self.managers[name]
        for _ in range(rounds):
            self.produce_and_send(name, [20, 20])
            self.all_arrive(name)
            self.learner.commit()
            self.receive_ack(manager, self.learner.ack(manager, 2 * MAX_BATCHES, ""))

    @rule(name=name)
    def report(self, name: str) -> None:
        manager = self.managers[name]
        manager.up.append(encode(manager.window.make_report("host", "running")))

    @rule(name=name, place=place, again=st.booleans())
    def arrive(self, name: str, place: int, again: bool) -> None:
        up = self.managers[name].up
        if up:
            frames = up[place % len(up)] if again else up.pop(place % len(up))
            self.learner.receive(frames, self.now)

    @rule(name=name)
    def all_arrive(self, name: str) -> None:
        up = self.managers[name].up
        while up:
            self.learner.receive(up.pop(0), self.now)

    @rule(name=name, seed=st.integers(0, 99), copies=st.integers(1, 2))
    def all_arrive_in_disorder(self, name: str, seed: int, copies: int) -> None:
        up = self.managers[name].up
        arriving = up * copies
        up[:] = []
        random.Random(seed).shuffle(arriving)
        for frames in arriving:
            self.learner.receive(frames, self.now)

    @rule(name=name, place=place)
    def lose(self, name: str, place: int) -> None:
        up = self.managers[name].up
        if up:
            del up[place % len(up)]

    @rule(name=name, budget=st.integers(1, 12), paused=st.sampled_from(["", "", "", "it waits"]))
    def acknowledge(self, name: str, budget: int, paused: str) -> None:
        self.learner.commit()
        manager = self.managers[name]
        manager.down.append(self.learner.ack(manager, budget, paused))

    @rule(name=name, place=place, again=st.booleans())
    def ack_arrives(self, name: str, place: int, again: bool) -> None:
        manager = self.managers[name]
        if manager.down:
            index = place % len(manager.down)
            self.receive_ack(manager, manager.down[index] if again else manager.down.pop(index))

    @rule(name=name)
    def ack_is_lost(self, name: str) -> None:
        if self.managers[name].down:
            self.managers[name].down.pop()

    @rule(seconds=st.floats(0.1, 4))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for manager in self.managers.values():
            manager.window.resend_stalled(self.now)

    @rule(name=name, clean=st.booleans())
    def connection_is_remade(self, name: str, clean: bool) -> None:
        manager = self.managers[name]
        if clean:
            manager.up.clear()
        manager.window.resend_all()

    @rule(name=name)
    def manager_dies(self, name: str) -> None:
        self.managers[name].start(self.fresh())

    @rule(name=name)
    def manager_is_given_up(self, name: str) -> None:
        self.learner.ledger.mark_gone(name)

    @rule(new_epoch=st.booleans(), clean=st.booleans())
    def learner_dies(self, new_epoch: bool, clean: bool) -> None:
        self.learner.restart(self.now, back=0, new_epoch=new_epoch)
        if clean:
            for manager in self.managers.values():
                manager.up.clear()

    @rule(back=st.integers(1, 3))
    def learner_loses_its_newest_rows(self, back: int) -> None:
        back = len(self.learner.commits) if back == 3 else back
        self.learner.restart(self.now, back=back, new_epoch=True)
        self.rolled_back = True

    @invariant()
    def nothing_is_inserted_twice(self) -> None:
        payloads = [payload for payload, _ in self.learner.ring]
        assert len(set(payloads)) == len(payloads)

    @invariant()
    def the_window_is_bounded_and_counts_itself(self) -> None:
        for manager in self.managers.values():
            window = manager.window
            assert window.batches <= MAX_BATCHES
            assert 0 <= window.bytes <= MAX_BYTES
            assert 0 <= window.outstanding <= window.batches
            assert window.rows >= 0
            assert window.produced == sum(manager.held.values())

    @invariant()
    def the_accounting_balances(self) -> None:
        ledger = self.learner.ledger
        for manager in (None, *ledger.manager_ids()):
            b = ledger.accounting(manager)
            assert b.produced == b.inserted + b.rejected + b.dropped + b.in_flight + b.lost
            assert min(b.counts()) >= 0
        assert ledger.accounting().duplicates == self.learner.duplicates
        assert ledger.accounting().inserted == sum(rows for _, rows in self.learner.ring)

    def teardown(self) -> None:
        if not hasattr(self, "managers"):
            return
        try:
            for _ in range(2 * REACH):  # what comes after the faults arrives too
                for manager in self.managers.values():
                    self.offer(manager, 1, 20, good=True)
                self.run_without_faults()
            for manager in self.managers.values():
                self.nothing_is_missing(manager)
            self.the_accounting_balances()
            self.nothing_is_inserted_twice()
        finally:
            for patch in self.patches:
                patch.stop()

    def run_without_faults(self) -> None:
        for _ in range(100):
            self.now += 1.0
            for manager in self.managers.values():
                self.report(manager.name)
                manager.up += [encode(batch) for batch in manager.window.next_batches(self.now)]
                self.all_arrive(manager.name)
            self.learner.commit()
            for manager in self.managers.values():
                manager.down.append(self.learner.ack(manager, 2, ""))
                while manager.down:
                    self.receive_ack(manager, manager.down.pop(0))
                manager.window.resend_stalled(self.now)
            if not any(manager.window.batches for manager in self.managers.values()):
                break
        for manager in self.managers.values():
            self.learner.ledger.mark_gone(manager.name)  # the incarnations that died
            self.report(manager.name)
            self.all_arrive(manager.name)

    def nothing_is_missing(self, manager: Manager) -> None:
        window = manager.window
        assert window.batches == 0
        assert window.bytes == 0
        assert window.outstanding == 0
        accounting = self.learner.ledger.accounting(manager.name)
        assert accounting.in_flight == 0
        if self.rolled_back:
            return
        ring = {payload for payload, _ in self.learner.ring}
        missing = sum(
            rows
            for payload, rows in manager.held.items()
            if payload.startswith(b"good") and payload not in ring
        )
        bad = sum(rows for payload, rows in manager.held.items() if payload.startswith(b"bad"))
        assert missing + bad == window.dropped + window.rejected
        assert missing <= window.dropped
        if window.incarnation <= len(MANAGERS):  # never died
            assert accounting.lost == 0


class TestDelivery(Delivery.TestCase):  # type: ignore[misc]  # hypothesis makes it at run time
    """Every batch arrives once, whatever the channel does."""

    settings = settings(max_examples=80, stateful_step_count=40)


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestDeliveryAtLength(Delivery.TestCase):  # type: ignore[misc]  # as above
    """The same, looked for longer."""

    settings = settings(max_examples=4000, stateful_step_count=60)
