"""Managers with an outbox: incarnations that have ended, and what is safe. Frames, no socket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_gateway_state import batch_frames, gateway, report_frames

from vedette_protocol.codec import decode_control
from vedette_protocol.limits import RETIRED_MAX
from vedette_protocol.messages import OUTBOX, Ack
from vedette_rl.replay.limiter import Limiter
from vedette_rl.storage import record_file
from vedette_rl.storage.record_file import RecordFile
from vedette_services.learner.gateway.fleet import BOTH_ALIVE_S
from vedette_services.learner.gateway.state import GatewayState

OF_OUTBOX: dict[str, Any] = {"features": (OUTBOX,)}
ENDED: dict[str, Any] = {**OF_OUTBOX, "ended": True, "actors": ()}


def store(state: GatewayState, seq: int, incarnation: int, now: float, base: int = 0) -> None:
    state.on_samples(batch_frames(seq, incarnation=incarnation, base=base), now)
    state.blocks(now)


def acks(state: GatewayState, now: float, inserted: int = 0) -> list[Ack]:
    messages = [decode_control([bytes(f) for f in m[1:]]) for m in state.acks_due(now, inserted)]
    return [message for message in messages if isinstance(message, Ack)]


def test_an_ended_incarnation_is_stored_beside_the_one_that_lives() -> None:
    state = gateway(admitted=())
    now = 0.0
    while now < 3 * BOTH_ALIVE_S:
        now += 0.5
        state.on_samples(report_frames(incarnation=6, **OF_OUTBOX), now)
        state.on_samples(report_frames(incarnation=5, **ENDED), now)
        limits = {ack.incarnation: ack.limit for ack in acks(state, now)}
    assert state.admission.rivals == 0
    assert min(limits[5], limits[6]) > 0
    [member] = state.fleet.status(now)
    assert (member.incarnation, len(member.actors)) == (6, 2)
    store(state, 0, 5, now)
    store(state, 0, 6, now)
    assert state.accounting().inserted == 8


def test_a_manager_that_leaves_pours_no_outbox_past_the_limiter() -> None:
    """Its samples stay in its files until it is back; only once the run is over nothing draws."""
    limiter = Limiter(1.0, min_size=4, error_buffer=4.0, batch_size=4)
    state = gateway(limiter, admitted=())
    state.on_samples(report_frames(incarnation=6, state="draining", **OF_OUTBOX), 0.5)
    state.on_samples(report_frames(incarnation=5, **ENDED), 0.5)
    assert {ack.limit for ack in acks(state, 1.0, inserted=100)} == {0}
    state.announce_stop("over", final=True)
    assert all(ack.limit > 0 for ack in acks(state, 2.0, inserted=100))


def test_an_ended_incarnation_leaves_the_account_of_the_living_one_open() -> None:
    state = gateway(admitted=())
    state.on_samples(report_frames(incarnation=6, **OF_OUTBOX), 1.0)
    state.on_samples(report_frames(incarnation=5, **ENDED), 1.1)
    assert not state.ledger.account("m", 6).gone


def test_safe_is_what_the_last_sync_has_and_is_told_to_outboxes_alone() -> None:
    state = gateway(admitted=())
    state.on_samples(report_frames(**OF_OUTBOX), 1.0)
    state.on_samples(report_frames(manager="other"), 1.0)
    acks(state, 1.0)
    store(state, 0, 5, 1.1)
    first = {ack.manager: ack.safe for ack in acks(state, 2.0)}
    assert first == {"m": 0, "other": None}
    state.safe.on_synced(state.stamp())
    store(state, 1, 5, 2.1)
    [later] = [ack for ack in acks(state, 3.0) if ack.manager == "m"]
    assert (later.contiguous, later.safe) == (2, 1)


def test_what_is_stored_and_not_safe_yet_is_counted() -> None:
    state = gateway(admitted=())
    state.on_samples(report_frames(**OF_OUTBOX), 1.0)
    state.on_samples(report_frames(manager="other"), 1.0)
    acks(state, 1.0)
    store(state, 0, 5, 1.1)
    state.safe.on_synced(state.stamp())
    for seq in (1, 2, 4):
        store(state, seq, 5, 2.1)
    assert state.safe.unsafe_batches(state.ledger) == 2
    state.safe.on_synced(state.stamp())
    assert state.safe.unsafe_batches(state.ledger) == 0


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordFile]:
    monkeypatch.setattr(record_file, "_BETWEEN_S", 0.0)
    records = RecordFile(tmp_path / "archive", 0)
    yield records
    records.close()


def commit(state: GatewayState, archive: RecordFile) -> bytes:
    """A stamp, once the disk has what left it."""
    state.stamp()
    deadline = time.monotonic() + 30.0
    while archive.synced < archive.end:
        assert time.monotonic() < deadline, "it is not synced"
        time.sleep(0.005)
    return state.stamp()


def store_ended(state: GatewayState, incarnations: range) -> None:
    """A batch of each of many incarnations that have ended."""
    for incarnation in incarnations:
        now = 0.1 * incarnation
        ended = report_frames(incarnation=incarnation, produced=4, sequenced=1, **ENDED)
        state.on_samples(ended, now)
        acks(state, now)
        store(state, 0, incarnation, now)


def test_a_closed_incarnation_of_which_all_is_settled_is_answered_and_opens_no_account(
    archive: RecordFile,
) -> None:
    """It waits until all is safe: at each report its account would close another one."""
    state = gateway(admitted=(), archive=archive)
    store_ended(state, range(100, 120))
    stamp = commit(state, archive)
    opened = len(state.ledger.alive_incarnations())
    first = report_frames(incarnation=100, produced=4, sequenced=1, **ENDED)
    state.on_samples(first, 20.0)
    [answer] = [ack for ack in acks(state, 20.0) if ack.incarnation == 100]
    assert (answer.contiguous, answer.safe) == (1, 0)
    state.safe.on_synced(stamp)
    state.on_samples(first, 30.0)
    [answer] = [ack for ack in acks(state, 30.0) if ack.incarnation == 100]
    assert (answer.contiguous, answer.safe) == (1, 1)
    assert not state.ledger.has_account("m", 100)
    assert len(state.ledger.alive_incarnations()) == opened
    assert state.accounting().inserted == 80


def test_an_incarnation_with_more_than_its_closed_account_has_is_opened_again(
    archive: RecordFile,
) -> None:
    state = gateway(admitted=(), archive=archive)
    store_ended(state, range(100, 120))
    restarted = gateway(stamp=commit(state, archive), archive=archive)
    restarted.on_samples(report_frames(incarnation=100, produced=8, sequenced=2, **ENDED), 20.0)
    acks(restarted, 20.0)
    store(restarted, 0, 100, 20.1)
    store(restarted, 1, 100, 20.1)
    counts = restarted.accounting()
    assert (counts.inserted, counts.duplicates) == (84, 4)


def test_a_second_process_with_an_outbox_that_is_refused_sends_its_rows_after_all() -> None:
    """It is refused for its id, and comes back with another one and its old files."""
    state = gateway(admitted=())
    now = 0.0
    while not state.admission.rivals:
        now += 0.5
        for incarnation in (5, 6):
            state.on_samples(report_frames(incarnation=incarnation, **OF_OUTBOX), now)
        acks(state, now)
    store(state, 0, 6, now)
    now += 60.0
    state.on_samples(report_frames(incarnation=6, sequenced=2, **ENDED), now)
    acks(state, now)
    store(state, 0, 6, now)
    store(state, 1, 6, now)
    assert (state.accounting().inserted, state.accounting().duplicates) == (8, 4)
    assert state.admission.rivals == 1


def test_files_that_lost_their_tail_hold_what_they_say() -> None:
    state = gateway(admitted=())
    state.on_samples(report_frames(produced=36, window_rows=36, sequenced=9, **OF_OUTBOX), 1.0)
    acks(state, 1.0)
    for seq in range(3):
        store(state, seq, 5, 1.1)
    less: dict[str, Any] = {"produced": 24, "window_rows": 12, "sequenced": 6}
    state.on_samples(report_frames(**less, **ENDED), 2.0)
    counts = state.accounting()
    assert (counts.produced, counts.inserted, counts.in_flight, counts.lost) == (36, 12, 12, 12)


def test_a_dropped_batch_that_was_stored_after_all_counts_once() -> None:
    state = gateway(admitted=())
    state.on_samples(report_frames(produced=8, window_rows=8, sequenced=2, **OF_OUTBOX), 1.0)
    acks(state, 1.0)
    dropped: dict[str, Any] = {"produced": 8, "dropped": 8, "window_rows": 0, "sequenced": 2}
    state.on_samples(report_frames(**dropped, **OF_OUTBOX), 2.0)
    store(state, 0, 5, 2.1)
    counts = state.accounting()
    assert (counts.produced, counts.inserted, counts.dropped, counts.lost) == (8, 4, 4, 0)


@pytest.mark.parametrize(
    ("sent", "features", "opens"), [(0, (), True), (1, (), False), (1, (OUTBOX,), True)]
)
def test_what_a_ledger_may_have_forgotten_is_refused_and_nothing_else(
    sent: int, features: tuple[str, ...], opens: bool
) -> None:
    """It never forgets what a manager with an outbox has sent."""
    state = gateway(admitted=(), max_managers=2)
    now = 1.0
    for number in range(RETIRED_MAX + 3):
        now += 20.0
        state.tick(now)
        state.on_samples(report_frames(manager=f"m{number}", incarnation=100 + number), now)
        acks(state, now)
        state.on_samples(batch_frames(0, manager=f"m{number}", incarnation=100 + number), now)
        state.blocks(now)
    now += 20.0
    state.tick(now)
    holds: dict[str, Any] = {"produced": 4, "window_rows": 4, "sequenced": sent}
    state.on_samples(report_frames(**holds, features=features), now)
    assert state.ledger.has_account("m", 5) is opens


def test_the_status_counts_what_an_outbox_could_not_write() -> None:
    state = gateway(admitted=())
    state.on_samples(report_frames(incarnation=6, **OF_OUTBOX, memory_rows=1200), 0.5)
    assert [member.memory_rows for member in state.fleet.status(0.5)] == [1200]
    state.on_samples(report_frames(incarnation=6, **OF_OUTBOX), 1.0)
    assert [member.memory_rows for member in state.fleet.status(1.0)] == [0]
