"""The receiver's ledger by itself."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_examples import REPORT, example_batch

from vedette_protocol.account import SampleAccounting
from vedette_protocol.credit import Credit
from vedette_protocol.errors import LedgerFullError, RetiredError, Sender, StampError
from vedette_protocol.ledger import Ledger
from vedette_protocol.limits import (
    ACCOUNTS_MAX,
    EXTRAS_MAX,
    OLD_ACCOUNTS_MAX,
    RETIRED_MAX,
    STAMP_MAX_BYTES,
    U64_MAX,
)
from vedette_protocol.messages import Ack, Batch, ManagerState, Report
from vedette_protocol.packing import pack

RUN = "run"


def batch(seq: int, *, manager: str = "m", incarnation: int = 7, base: int = 0) -> Batch:
    return example_batch(10)._replace(
        run_id=RUN, manager=manager, incarnation=incarnation, seq=seq, base=base
    )


def test_a_batch_that_was_taken_and_is_refused_is_settled_as_rejected() -> None:
    one, other = Ledger(RUN), Ledger(RUN)
    one.mark_alive("m", 7, 0.0)
    one.record_batch(batch(0), 0.0)
    one.reject_batch(batch(0))
    other.settle_rejected("m", 7, 0, 10, 0.0)
    assert one.to_bytes() == other.to_bytes()


def test_nothing_is_taken_of_an_incarnation_that_was_never_heard() -> None:
    with pytest.raises(KeyError):
        Ledger(RUN).record_batch(batch(0), 0.0)


def insert(ledger: Ledger, taken: Batch, now: float = 0.0) -> str:
    ledger.mark_alive(taken.manager, taken.incarnation, now)
    return ledger.record_batch(taken, now)


def report(
    produced: int,
    *,
    dropped: int = 0,
    window_rows: int = 0,
    base: int = 0,
    incarnation: int = 7,
    state: ManagerState = "running",
) -> Report:
    return replace(
        REPORT,
        manager="m",
        incarnation=incarnation,
        run_id=RUN,
        state=state,
        produced=produced,
        dropped=dropped,
        window_rows=window_rows,
        base=base,
        sequenced=max(41, base),
    )


def ack_of(ledger: Ledger, manager: str = "m", incarnation: int = 7) -> Ack:
    return ledger.make_ack(
        manager,
        incarnation,
        epoch=1,
        learner=5,
        credit=Credit(4, 400),
        version=9,
        first_actor=16,
    )


def test_ledger_drops_a_batch_it_has_seen_and_counts_it() -> None:
    ledger = Ledger(RUN)
    assert insert(ledger, batch(0)) == "new"
    assert insert(ledger, batch(0)) == "duplicate"
    assert ledger.accounting() == SampleAccounting(produced=10, inserted=10, duplicates=10)


def test_order_does_not_matter() -> None:
    ledger = Ledger(RUN)
    assert [insert(ledger, batch(seq)) for seq in (5, 1, 0, 3, 2, 4)] == ["new"] * 6
    assert (ack_of(ledger).contiguous, ack_of(ledger).extras) == (6, 0)


@given(st.lists(st.integers(0, 40), max_size=120))
def test_the_set_is_exact_whatever_the_order(seqs: list[int]) -> None:
    ledger = Ledger(RUN)
    seen: set[int] = set()
    for seq in seqs:
        assert ledger.is_new("m", 7, seq) == (seq not in seen)
        assert ledger.has_settled("m", 7, seq) == (seq in seen)
        assert insert(ledger, batch(seq)) == ("duplicate" if seq in seen else "new")
        seen.add(seq)
        ack = ack_of(ledger)
        assert ack.extras << ack.contiguous | (1 << ack.contiguous) - 1 == sum(1 << s for s in seen)
        assert ack.contiguous not in seen
        assert ack.beyond == max(seen) + 1


def test_a_batch_beyond_the_exact_set_is_not_taken_and_not_acknowledged() -> None:
    ledger = Ledger(RUN)
    assert insert(ledger, batch(EXTRAS_MAX)) == "beyond"
    assert not ledger.is_new("m", 7, EXTRAS_MAX)
    assert not ledger.settle_rejected("m", 7, EXTRAS_MAX, 10, 0.0)
    assert insert(ledger, batch(EXTRAS_MAX - 1)) == "new"
    assert ack_of(ledger).extras.bit_length() <= EXTRAS_MAX


def test_a_rejected_batch_is_settled_and_counted_once() -> None:
    ledger = Ledger(RUN)
    assert ledger.settle_rejected("m", 7, 0, 10, 0.0)
    assert not ledger.settle_rejected("m", 7, 0, 10, 0.0)
    ack = ack_of(ledger)
    assert (ack.contiguous, ack.rejected_batches, ack.rejected_rows) == (1, 1, 10)
    assert ledger.accounting() == SampleAccounting(produced=10, rejected=10)


def test_incarnations_and_managers_have_sets_of_their_own() -> None:
    ledger = Ledger(RUN)
    for manager, incarnation in (("m", 7), ("m", 8), ("n", 7)):
        assert insert(ledger, batch(0, manager=manager, incarnation=incarnation)) == "new"
    assert ledger.accounting("m").inserted == 20
    assert ledger.accounting().inserted == 30


def test_a_manager_keeps_its_number() -> None:
    ledger = Ledger(RUN)
    insert(ledger, batch(0, manager="m"))
    insert(ledger, batch(0, manager="n"))
    insert(ledger, batch(0, manager="m", incarnation=8))
    ledger = Ledger.from_bytes(ledger.to_bytes(), 0.0)
    insert(ledger, batch(0, manager="o"))
    assert [ledger.manager_number(manager) for manager in ("m", "n", "o")] == [0, 1, 2]


def test_what_a_living_manager_holds_is_in_flight() -> None:
    ledger = Ledger(RUN)
    ledger.on_report(report(100, dropped=20, window_rows=80), 0.0)
    insert(ledger, batch(0))
    assert ledger.accounting() == SampleAccounting(
        produced=100, inserted=10, dropped=20, in_flight=70
    )


def test_what_is_known_to_exist_was_produced_even_before_the_report() -> None:
    ledger = Ledger(RUN)
    ledger.on_report(report(5, window_rows=5), 0.0)
    insert(ledger, batch(0))
    assert ledger.accounting() == SampleAccounting(produced=10, inserted=10)


def test_a_late_report_does_not_take_back_a_later_one() -> None:
    ledger = Ledger(RUN)
    ledger.on_report(report(200, dropped=20, window_rows=180, base=2), 0.0)
    ledger.on_report(report(100, window_rows=100), 0.0)
    assert ledger.accounting() == SampleAccounting(produced=200, dropped=20, in_flight=180)


def test_what_a_gone_manager_held_is_lost_until_it_is_heard_again() -> None:
    ledger = Ledger(RUN)
    ledger.on_report(report(100, window_rows=100), 0.0)
    ledger.mark_gone("m")
    assert ledger.accounting().lost == 100
    assert ledger.alive_incarnations() == []
    insert(ledger, batch(0))
    assert (ledger.accounting().lost, ledger.accounting().in_flight) == (0, 90)
    assert ledger.alive_incarnations() == [("m", 7)]


def test_what_a_killed_incarnation_held_is_lost_when_the_next_one_comes() -> None:
    ledger = Ledger(RUN)
    ledger.on_report(report(100, window_rows=100), 0.0)
    insert(ledger, batch(0, incarnation=8))
    assert ledger.accounting() == SampleAccounting(produced=110, inserted=10, lost=100)
    assert ledger.alive_incarnations() == [("m", 8)]


def test_a_manager_that_left_in_order_loses_nothing() -> None:
    ledger = Ledger(RUN)
    insert(ledger, batch(0))
    ledger.on_report(report(30, dropped=20, base=1, state="gone"), 0.0)
    assert ledger.accounting() == SampleAccounting(produced=30, inserted=10, dropped=20)
    assert ledger.alive_incarnations() == []


def test_a_report_for_another_run_shows_only_that_the_manager_lives() -> None:
    ledger = Ledger(RUN)
    ledger.on_report(replace(report(100, window_rows=100), run_id=""), 3.0)
    assert ledger.accounting() == SampleAccounting()
    assert ledger.last_seen("m") == 3.0
    assert ledger.alive_incarnations() == [("m", 7)]


@pytest.mark.parametrize("by", ["batch", "report"])
def test_a_ledger_that_has_forgotten_catches_up_by_the_senders_base(by: str) -> None:
    ledger = Ledger(RUN)
    base = 5 * EXTRAS_MAX
    assert insert(ledger, batch(1)) == "new"
    if by == "report":
        ledger.on_report(report(10 * base, window_rows=20, base=base), 0.0)
    assert insert(ledger, batch(base + 1, base=base)) == "new"
    assert insert(ledger, batch(base, base=base)) == "new"
    assert ack_of(ledger).contiguous == base + 2


def test_catching_up_keeps_what_is_settled_beyond() -> None:
    ledger = Ledger(RUN)
    insert(ledger, batch(10))
    insert(ledger, batch(12))
    ledger.on_report(report(10_000, window_rows=30, base=9), 0.0)
    assert (ack_of(ledger).contiguous, ack_of(ledger).extras) == (9, 0b1010)
    assert insert(ledger, batch(10)) == "duplicate"
    insert(ledger, batch(9))
    assert ack_of(ledger).contiguous == 11


def test_what_was_acknowledged_in_a_forgotten_state_is_lost() -> None:
    ledger = Ledger(RUN)
    ledger.on_report(report(1000, window_rows=20, base=98), 0.0)
    assert ledger.accounting() == SampleAccounting(produced=1000, in_flight=20, lost=980)


def test_the_stamp_brings_everything_back() -> None:
    ledger = Ledger(RUN)
    for seq in (0, 1, 5, 1000):
        insert(ledger, batch(seq))
    insert(ledger, batch(1))
    ledger.settle_rejected("m", 7, 9, 10, 0.0)
    ledger.on_report(report(500, dropped=30, window_rows=100), 0.0)
    for incarnation in range(OLD_ACCOUNTS_MAX + 4):
        insert(ledger, batch(3, manager="n", incarnation=incarnation))
    again = Ledger.from_bytes(ledger.to_bytes(), 50.0)
    assert again.to_bytes() == ledger.to_bytes()
    assert again.run_id == RUN
    assert again.manager_ids() == ledger.manager_ids()
    assert again.alive_incarnations() == ledger.alive_incarnations()
    assert ack_of(again) == ack_of(ledger)
    for manager in (None, "m", "n"):
        assert again.accounting(manager) == ledger.accounting(manager)
    assert again.last_seen("m") == 50.0
    with pytest.raises(RetiredError):
        insert(again, batch(3, manager="n", incarnation=0))


def test_the_stamp_follows_every_change() -> None:
    ledger = Ledger(RUN)
    changes = [
        lambda: insert(ledger, batch(0)),
        lambda: insert(ledger, batch(0)),
        lambda: ledger.settle_rejected("m", 7, 3, 10, 0.0),
        lambda: ledger.on_report(report(500, window_rows=480), 0.0),
        lambda: ledger.mark_gone("m"),
        lambda: insert(ledger, batch(2, base=2)),
    ]
    stamps = [ledger.to_bytes()]
    for change in changes:
        change()
        stamps.append(ledger.to_bytes())
        assert Ledger.from_bytes(stamps[-1], 0.0).accounting() == ledger.accounting()
    assert len(set(stamps)) == len(stamps)


@pytest.mark.parametrize(
    "stamp",
    [
        b"",
        b"\xc1",
        pack([]),
        pack([2, RUN, 0, [0] * 7, [], []]),
        pack([1, RUN, 0, [0] * 7, []]),
        pack([1, RUN, 0, [0] * 6 + [-1], [], []]),
        pack([1, RUN, 0, [0] * 8, [], []]),
        pack([1, RUN, 0, [0] * 7, [], [b"\x00"]]),
        pack([1, RUN, 0, [0] * 7, [], [pack(["m", 0, [0] * 7, [[1, 2]]])]]),
        pack([1, RUN, 0, [0] * 7, [], [pack(["m", 0, [0] * 7, [[1, 2, b"", *[0.5] * 9, False]]])]]),
        pack([1, RUN, 0, [0] * 7, None, []]),
    ],
)
def test_bytes_that_are_no_ledger_are_refused(stamp: bytes) -> None:
    with pytest.raises(StampError, match="stamp cannot be read"):
        Ledger.from_bytes(stamp, 0.0)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_stamp_is_read_or_refused(place: int, byte: int) -> None:
    ledger = Ledger(RUN)
    for seq in (0, 1, 5):
        insert(ledger, batch(seq))
    stamp = bytearray(ledger.to_bytes())
    stamp[place % len(stamp)] = byte
    with contextlib.suppress(StampError):
        Ledger.from_bytes(stamp, 0.0).accounting()


def test_a_manager_that_keeps_restarting_takes_no_more_room() -> None:
    ledger = Ledger(RUN)
    for incarnation in range(3 * RETIRED_MAX):
        insert(ledger, batch(0, incarnation=incarnation))
    assert len(ledger.to_bytes()) < 20_000
    assert ledger.accounting().inserted == 30 * RETIRED_MAX
    with pytest.raises(RetiredError, match="two managers use the same id"):
        insert(ledger, batch(0, incarnation=3 * RETIRED_MAX - OLD_ACCOUNTS_MAX - 3))
    assert not ledger.is_new("m", 3 * RETIRED_MAX - OLD_ACCOUNTS_MAX - 3, 0)


def test_a_full_ledger_closes_who_has_been_gone_longest_and_keeps_the_sums() -> None:
    ledger = Ledger(RUN)
    for place in range(ACCOUNTS_MAX):
        insert(ledger, batch(0, manager=f"m{place}", incarnation=place), now=float(place))
    with pytest.raises(LedgerFullError, match="no place in the ledger") as caught:
        insert(ledger, batch(0, manager="late", incarnation=5000))
    assert caught.value.sender == Sender("late", 5000, None)
    ledger.mark_gone("m4")
    ledger.mark_gone("m3")
    insert(ledger, batch(0, manager="late", incarnation=5000))
    assert "m3" not in ledger.manager_ids()
    assert "m4" in ledger.manager_ids()
    assert ledger.manager_number("late") == ACCOUNTS_MAX
    assert ledger.accounting().inserted == 10 * (ACCOUNTS_MAX + 1)


def test_the_largest_ledger_fits_in_its_stamp() -> None:
    ledger = Ledger(RUN)
    for incarnation in range(RETIRED_MAX + OLD_ACCOUNTS_MAX + 1):
        insert(ledger, batch(0, incarnation=U64_MAX - incarnation))
    for place in range(ACCOUNTS_MAX - OLD_ACCOUNTS_MAX - 1):
        manager = f"{place:05d}".rjust(64, "x")
        big = 1 << 61
        incarnation = (1 << 63) + place
        entry = batch(big + EXTRAS_MAX - 1, manager=manager, incarnation=incarnation, base=big)
        insert(ledger, entry)
        counts = {"produced": big, "dropped": big // 2, "window_rows": big // 3, "base": big}
        ledger.on_report(
            replace(
                REPORT,
                manager=manager,
                incarnation=incarnation,
                run_id=RUN,
                sequenced=2 * big - 1,
                **counts,  # type: ignore[arg-type]  # all of them are integers
            ),
            0.0,
        )
    stamp = ledger.to_bytes()
    assert ACCOUNTS_MAX * 200 < len(stamp) <= STAMP_MAX_BYTES
    assert Ledger.from_bytes(stamp, 0.0).to_bytes() == stamp


def test_an_ack_carries_the_credit_and_its_reason() -> None:
    ledger = Ledger(RUN)
    ack = ledger.make_ack(
        "m",
        7,
        epoch=2,
        learner=5,
        credit=Credit(0, 0, "the learner waits"),
        version=3,
        first_actor=4,
    )
    assert (ack.run_id, ack.epoch, ack.learner, ack.version) == (RUN, 2, 5, 3)
    assert (ack.credit_batches, ack.credit_bytes, ack.reason) == (0, 0, "the learner waits")
    assert (ack.contiguous, ack.extras, ack.first_actor) == (0, 0, 4)
