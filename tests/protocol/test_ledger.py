"""The receiver's ledger by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_examples import REPORT, example_batch

from vedette_protocol.account import IncarnationAccount, SampleAccounting
from vedette_protocol.codec import decode_control, encode
from vedette_protocol.errors import (
    ArchiveFullError,
    LedgerFormatError,
    LedgerFullError,
    RetiredError,
    Sender,
    StampError,
)
from vedette_protocol.ledger import Ledger
from vedette_protocol.limits import (
    ACCOUNTS_MAX,
    CLOSING_MAX,
    COUNT_MAX,
    EXTRAS_MAX,
    OLD_ACCOUNTS_MAX,
    RETIRED_MAX,
    STAMP_MAX_BYTES,
    U64_MAX,
)
from vedette_protocol.messages import OUTBOX, Ack, Batch, Report, ReportedState
from vedette_protocol.packing import pack, unpack

RUN = "run"
HALVES = [1, 2, b"", *[0.5] * 10, False]  # an account whose counts are none


def batch(seq: int, *, manager: str = "m", incarnation: int = 7, base: int = 0) -> Batch:
    return example_batch(10)._replace(
        run_id=RUN, manager=manager, incarnation=incarnation, seq=seq, base=base, env_steps=0
    )


def test_a_batch_that_was_taken_and_is_refused_is_settled_as_rejected() -> None:
    one, other = Ledger(RUN), Ledger(RUN)
    for ledger in (one, other):
        admit(ledger)
    one.record_batch(batch(0), 0.0)
    one.reject_batch(batch(0))
    other.settle_rejected("m", 7, 0, 10, 0.0)
    assert one.to_bytes() == other.to_bytes()


def test_nothing_is_taken_of_an_incarnation_that_was_never_heard() -> None:
    with pytest.raises(KeyError):
        Ledger(RUN).record_batch(batch(0), 0.0)


def admit(ledger: Ledger, manager: str = "m", incarnation: int = 7, now: float = 0.0) -> None:
    """Open an account that may send as much as the exact set reaches."""
    ledger.mark_alive(manager, incarnation, now)
    ledger.account(manager, incarnation).grant(EXTRAS_MAX)


def insert(ledger: Ledger, taken: Batch, now: float = 0.0) -> str:
    admit(ledger, taken.manager, taken.incarnation, now)
    if taken.base > ledger.account(taken.manager, taken.incarnation).contiguous:
        ledger.account(taken.manager, taken.incarnation).advance_to(taken.base)
        admit(ledger, taken.manager, taken.incarnation, now)
    return ledger.record_batch(taken, now)


def report(
    produced: int,
    *,
    dropped: int = 0,
    window_rows: int = 0,
    base: int = 0,
    incarnation: int = 7,
    state: ReportedState = "running",
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


def ack_of(ledger: Ledger) -> Ack:
    return ledger.make_ack("m", 7, epoch=1, learner=5, version=9, first_actor=16)


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
        assert ledger.is_new("m", 7, seq) == (bool(seen) and seq not in seen)
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
    admit(ledger)
    assert ledger.settle_rejected("m", 7, 0, 10, 0.0)
    assert not ledger.settle_rejected("m", 7, 0, 10, 0.0)
    ack = ack_of(ledger)
    assert (ack.contiguous, ack.rejected_batches, ack.rejected_rows) == (1, 1, 10)
    assert ledger.accounting() == SampleAccounting(produced=10, rejected=10)


def test_a_rejected_batch_counts_no_more_rows_than_a_batch_may_have() -> None:
    ledger = Ledger(RUN)
    ledger.batch_rows = 32
    admit(ledger)
    ledger.settle_rejected("m", 7, 0, 1 << 20, 0.0, "too many rows")
    ledger.record_batch(batch(1)._replace(rows=1 << 20, env_steps=1 << 40), 0.0)
    ledger.reject_batch(batch(1)._replace(rows=1 << 20, env_steps=1 << 40), "too many again")
    assert ledger.accounting() == SampleAccounting(produced=64, rejected=64)
    assert ack_of(ledger).rejected_reason == "too many again"


def test_a_batch_at_or_above_the_limit_is_neither_settled_nor_counted() -> None:
    ledger = Ledger(RUN)
    ledger.mark_alive("m", 7, 0.0)
    assert ledger.record_batch(batch(0), 0.0) == "beyond"  # nothing is granted before an ack
    ledger.account("m", 7).grant(2)
    assert [ledger.record_batch(batch(seq), 0.0) for seq in (1, 2, 0, 2)] == [
        *("new", "beyond", "new", "beyond")
    ]
    assert not ledger.settle_rejected("m", 7, 2, 10, 0.0)
    assert ack_of(ledger).limit == 2
    ledger.account("m", 7).grant(0)
    assert ack_of(ledger).limit == 2  # what was granted is not taken back
    ledger.account("m", 7).grant(1)
    assert ledger.record_batch(batch(2), 0.0) == "new"


def test_a_claim_of_an_earlier_limit_is_accepted_up_to_a_bound() -> None:
    ledger = Ledger(RUN)
    claim = replace(report(0), limit=50)
    assert ledger.on_report(claim, 0.0, claims_max=30) == 30
    assert ledger.on_report(claim, 0.0, claims_max=30) == 20
    assert ledger.on_report(replace(claim, limit=1 << 40), 0.0, claims_max=1 << 50) == (
        EXTRAS_MAX - 50
    )
    assert ack_of(ledger).limit == EXTRAS_MAX


@pytest.mark.parametrize("base", [COUNT_MAX - 3, COUNT_MAX])
def test_what_a_peer_claims_near_the_wires_largest_number_makes_no_ack_beyond_it(
    base: int,
) -> None:
    ledger = Ledger(RUN)
    claim = replace(report(0, base=base), sequenced=base, limit=COUNT_MAX)
    ledger.on_report(claim, 0.0, claims_max=1000)
    ledger.account("m", 7).grant(100)
    for seq in range(base, COUNT_MAX):
        assert insert(ledger, batch(seq, base=base)) == "new"
    ledger.account("m", 7).grant(100)
    ack = ack_of(ledger)
    assert (ack.contiguous, ack.limit) == (COUNT_MAX, COUNT_MAX)
    assert decode_control([bytes(frame) for frame in encode(ack)]) == ack


def test_environment_steps_are_those_of_inserted_batches_once_each() -> None:
    ledger = Ledger(RUN)
    insert(ledger, batch(0)._replace(env_steps=40))
    insert(ledger, batch(0)._replace(env_steps=40))
    insert(ledger, batch(1)._replace(env_steps=7))
    insert(ledger, batch(2)._replace(env_steps=1000))
    ledger.reject_batch(batch(2)._replace(env_steps=1000))
    assert ledger.accounting().env_steps == ledger.env_steps == 47
    again = Ledger.from_bytes(ledger.to_bytes(), 0.0)
    insert(again, batch(0, incarnation=8)._replace(env_steps=1))
    assert again.accounting().env_steps == again.env_steps == 48


def test_claims_that_sequence_numbers_do_not_make_possible_are_not_believed() -> None:
    ledger = Ledger(RUN)
    ledger.batch_rows = 32
    ledger.window_batches = 8
    admit(ledger)
    lie = replace(report(1 << 61, window_rows=1 << 60), sequenced=1 << 50, window_batches=1 << 40)
    ledger.on_report(lie, 0.0)
    accounting = ledger.accounting()
    assert accounting.in_flight == 32 * 8
    assert accounting.produced == 32 * (8 + EXTRAS_MAX)
    assert accounting.env_steps == 0


def test_what_an_outbox_holds_beyond_a_window_is_not_lost() -> None:
    ledger = Ledger(RUN)
    ledger.batch_rows = 10
    ledger.window_batches = 8
    held = replace(report(5000, window_rows=5000), window_batches=500, features=(OUTBOX,))
    ledger.on_report(held, 0.0)
    assert ledger.accounting() == SampleAccounting(produced=5000, in_flight=5000)
    later = replace(report(6000, window_rows=4000, dropped=2000), window_batches=400)
    ledger.on_report(replace(later, features=(OUTBOX,)), 1.0)
    assert ledger.accounting() == SampleAccounting(produced=6000, dropped=2000, in_flight=4000)


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


def test_an_incarnation_that_a_late_batch_revived_goes_silent_though_its_manager_lives() -> None:
    ledger = Ledger(RUN)
    insert(ledger, batch(0))
    insert(ledger, batch(0, incarnation=8), 1.0)
    ledger.record_batch(batch(0), 2.0)  # it was on its way when its process was killed
    ledger.on_report(replace(report(10), incarnation=8), 20.0)
    assert ledger.alive_incarnations() == [("m", 7), ("m", 8)]
    assert ledger.mark_silent(10.0) == []
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
    assert ledger.mark_silent(3.0) == []
    assert ledger.alive_incarnations() == [("m", 7)]
    assert ledger.mark_silent(3.1) == ["m"]


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


def test_what_a_newer_state_knew_is_lost_where_nobody_holds_it() -> None:
    newer = Ledger(RUN)
    for seq in range(5):
        insert(newer, batch(seq))
    synced = newer.to_bytes()
    for seq in range(5, 12):
        insert(newer, batch(seq))
    insert(newer, batch(0, manager="joined"))
    recovered = Ledger.from_bytes(synced, 0.0)
    recovered.count_lost(newer)
    recovered = Ledger.from_bytes(recovered.to_bytes(), 0.0)
    assert recovered.accounting() == SampleAccounting(produced=130, inserted=50, lost=80)
    # One is alive, and holds the last of its batches, which was not acknowledged.
    recovered.on_report(report(120, window_rows=10, base=11), 0.0)
    assert insert(recovered, batch(11, base=11)) == "new"
    for seq in range(12):
        assert insert(recovered, batch(seq, base=11)) == "duplicate"
    recovered.on_report(report(120, window_rows=0, base=12), 0.0)
    found = replace(recovered.accounting(), duplicates=0)
    assert found == SampleAccounting(produced=130, inserted=60, lost=70)


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
    # What else was granted is known to its manager, whose report says it.
    assert ack_of(again) == replace(ack_of(ledger), limit=1001)
    for manager in (None, "m", "n"):
        assert again.accounting(manager) == ledger.accounting(manager)
    assert again.mark_silent(50.0) == []
    assert again.mark_silent(50.1) == again.manager_ids()
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
        pack([1, RUN, 0, [0] * 8, [], []]),
        pack([3, RUN, 0, [0] * 8, [], []]),
        pack([2, RUN, 0, [0] * 8, []]),
        pack([2, RUN, 0, [0] * 7 + [-1], [], []]),
        pack([2, RUN, 0, [0] * 7, [], []]),
        pack([2, RUN, 0, [0] * 8, [], [b"\x00"]]),
        pack([2, RUN, 0, [0] * 8, [], [pack(["m", 0, [0] * 8, []])]]),
        pack([2, RUN, 0, [0] * 8, [], [pack(["m", 0, [0] * 8, [[1, 2]], ""])]]),
        pack([2, RUN, 0, [0] * 8, [], [pack(["m", 0, [0] * 8, [HALVES], ""])]]),
        pack([2, RUN, 0, [0] * 8, [], [pack(["m", 0, [0] * 8, [], 5])]]),
        pack([2, RUN, 0, [0] * 8, None, []]),
    ],
)
def test_bytes_that_are_no_ledger_are_refused(stamp: bytes) -> None:
    with pytest.raises(StampError, match="the ledger cannot be read"):
        Ledger.from_bytes(stamp, 0.0)


@pytest.mark.parametrize("written", [1, 4])
def test_a_ledger_of_another_format_says_which(written: int) -> None:
    with pytest.raises(LedgerFormatError) as refused:
        Ledger.from_bytes(pack([written, RUN, 0, [0] * 8, [], []]), 0.0)
    assert (refused.value.found, refused.value.ours) == (written, 2)


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


def test_a_manager_whose_closed_account_is_forgotten_is_refused_and_not_counted_anew() -> None:
    """Its batch was inserted, the ack was lost, and it was silent while many others came."""
    ledger = Ledger(RUN)
    ledger.places.limit = 10
    insert(ledger, batch(0))
    ledger.mark_gone("m")
    for number in range(RETIRED_MAX + 11):
        insert(ledger, batch(0, manager=f"m{number}", incarnation=100 + number), now=float(number))
        ledger.mark_gone(f"m{number}")
    assert "m" not in ledger.manager_ids()
    late = 5000.0
    holds = replace(report(10, window_rows=10), sequenced=1, limit=64)
    with pytest.raises(RetiredError, match="start the manager again"):
        ledger.on_report(holds, late, claims_max=64)
    with pytest.raises(RetiredError):
        ledger.mark_alive("m", 7, late, has_sent=True)
    assert not ledger.has_account("m", 7)
    new = replace(report(0, incarnation=8), sequenced=0)
    ledger.on_report(new, late)
    ledger.account("m", 8).grant(1)
    assert insert(ledger, batch(0, incarnation=8), now=late) == "new"


def outbox_report(incarnation: int, *, sequenced: int, ended: bool = True) -> Report:
    counts = report(10 * sequenced, window_rows=10 * sequenced, incarnation=incarnation)
    return replace(counts, sequenced=sequenced, features=(OUTBOX,), ended=ended)


def store_of_outbox(ledger: Ledger, incarnation: int, seq: int) -> str:
    """A report of an outbox and a batch of it: whether the batch is new."""
    ledger.on_report(outbox_report(incarnation, sequenced=2), 0.0)
    ledger.account("m", incarnation).grant(8)
    return ledger.record_batch(batch(seq, incarnation=incarnation), 0.0)


def restarted(ledger: Ledger) -> Ledger:
    return Ledger.from_bytes(ledger.to_bytes(), 0.0)


def test_a_closed_account_of_an_outbox_is_opened_again_as_it_was() -> None:
    """Its disk was put back from an older copy, or it was silent while others needed its place."""
    ledger = Ledger(RUN)
    for incarnation in range(20):
        assert store_of_outbox(ledger, incarnation, 0) == "new"
        ledger = restarted(ledger)
    assert not ledger.has_account("m", 3)
    assert ledger.settled_below("m", 3) == 1
    counts = ledger.accounting()
    assert (counts.produced, counts.inserted) == (20 * 20, 20 * 10)
    assert store_of_outbox(ledger, 3, 0) == "duplicate"
    assert store_of_outbox(ledger, 3, 1) == "new"
    again = restarted(ledger).accounting()
    assert (again.produced, again.inserted) == (20 * 20, 20 * 10 + 10)


def test_a_closed_account_is_of_its_own_manager_alone() -> None:
    ledger = Ledger(RUN)
    for incarnation in range(20):
        store_of_outbox(ledger, incarnation, 0)
    ledger.on_report(replace(outbox_report(3, sequenced=2), manager="other"), 0.0)
    assert ledger.account("other", 3).contiguous == 0
    for incarnation in range(3, 20):
        ledger.on_report(
            replace(outbox_report(incarnation, sequenced=2), manager="other", base=2), 0.0
        )
    assert ledger.settled_below("other", 3) == 2
    assert store_of_outbox(ledger, 3, 0) == "duplicate"
    assert ledger.settled_below("m", 3) == 1


class ListedArchive:
    """An archive in memory, whose disk has what `synced` says."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int, bytes]] = []
        self.end = self.synced = 0
        self.takes = True

    def append(self, records: Sequence[tuple[int, bytes]]) -> bool:
        for key, record in records if self.takes else ():
            self.records.append((self.end, key, record))
            self.end += len(record)
        return self.takes

    def find(self, key: int, below: int | None = None) -> Iterator[bytes]:
        limit = self.end if below is None else below
        yield from (r for at, k, r in reversed(self.records) if k == key and at < limit)

    def lose_power(self) -> None:
        """Lose all behind the last sync."""
        self.records = [record for record in self.records if record[0] < self.synced]
        self.end = self.synced


def archived(ledger: Ledger, archive: ListedArchive, *, synced: bool = True) -> bytes:
    """The stamp of a commit."""
    ledger.archive_closed()
    if synced:
        archive.synced = archive.end
    ledger.archive_closed()
    return ledger.to_bytes()


def test_closed_accounts_of_outboxes_are_never_forgotten_and_the_stamp_does_not_grow() -> None:
    ledger = Ledger(RUN)
    archive = ListedArchive()
    ledger.use_archive(archive)
    count = 3 * CLOSING_MAX
    for incarnation in range(count):
        store_of_outbox(ledger, incarnation, 0)
        stamp = archived(ledger, archive)
    assert len(stamp) < 1000
    counts = ledger.accounting()
    assert (counts.produced, counts.inserted) == (20 * count, 10 * count)
    ledger = Ledger.from_bytes(stamp, 0.0)
    ledger.use_archive(archive)
    assert ledger.archive_end == archive.end
    assert ledger.accounting() == counts
    for incarnation in (3, 100, count - 10):
        assert store_of_outbox(ledger, incarnation, 0) == "duplicate"
        assert store_of_outbox(ledger, incarnation, 1) == "new"
        archived(ledger, archive)
    counts = ledger.accounting()
    assert (counts.produced, counts.inserted) == (20 * count, 10 * count + 30)
    again = Ledger.from_bytes(ledger.to_bytes(), 0.0)
    assert again.accounting() == counts
    assert again.env_steps == ledger.env_steps


def test_an_account_leaves_the_stamp_when_the_disk_has_it_in_the_archive() -> None:
    ledger = Ledger(RUN)
    archive = ListedArchive()
    ledger.use_archive(archive)
    for incarnation in range(20):
        store_of_outbox(ledger, incarnation, 0)
    waiting = archived(ledger, archive, synced=False)
    archive.lose_power()
    ledger = Ledger.from_bytes(waiting, 0.0)
    ledger.use_archive(archive)
    assert ledger.archive_end == 0
    assert ledger.settled_below("m", 3) == 1
    moved = archived(ledger, archive)
    assert len(moved) < len(waiting)
    archive.lose_power()
    ledger = Ledger.from_bytes(moved, 0.0)
    ledger.use_archive(archive)
    assert ledger.archive_end == archive.end > 0
    assert ledger.settled_below("m", 3) == 1
    assert ledger.accounting().inserted == 200


def test_a_ledger_sees_the_archive_as_it_was_at_its_stamp() -> None:
    """What is safe is asked of an older stamp than the last one."""
    ledger = Ledger(RUN)
    archive = ListedArchive()
    ledger.use_archive(archive)
    for incarnation in range(20):
        store_of_outbox(ledger, incarnation, 0)
    older = archived(ledger, archive)
    store_of_outbox(ledger, 3, 1)
    for incarnation in range(20, 40):
        store_of_outbox(ledger, incarnation, 0)
    archived(ledger, archive)
    assert ledger.settled_below("m", 3) == 2
    before = Ledger.from_bytes(older, 0.0)
    before.use_archive(archive)
    assert before.settled_below("m", 3) == 1
    assert before.settled_below("m", 30) == 0


def test_what_a_power_failure_has_taken_of_a_session_in_the_archive_is_lost() -> None:
    ledger = Ledger(RUN)
    store_of_outbox(ledger, 0, 0)
    synced = ledger.to_bytes()
    archive = ListedArchive()
    ledger.use_archive(archive)
    ledger.on_report(outbox_report(0, sequenced=7), 0.0)
    for incarnation in range(1, 20):
        store_of_outbox(ledger, incarnation, 0)
    newer = Ledger.from_bytes(archived(ledger, archive), 0.0)
    newer.use_archive(archive)
    recovered = Ledger.from_bytes(synced, 0.0)
    recovered.count_lost(newer)
    counts = recovered.accounting()
    open_there = OLD_ACCOUNTS_MAX + 1
    assert (counts.produced, counts.inserted) == (70 + 20 * open_there, 10)


def test_an_incarnation_that_was_never_here_is_told_from_a_forgotten_one_by_its_outbox() -> None:
    """It was begun and ended offline, and comes after many others were closed."""
    ledger = Ledger(RUN)
    ledger.use_archive(ListedArchive())
    for incarnation in range(RETIRED_MAX + 20):
        insert(ledger, batch(0, incarnation=10_000 + incarnation))
    with pytest.raises(RetiredError):
        ledger.mark_alive("m", 3, 0.0, has_sent=True)
    assert store_of_outbox(ledger, 3, 0) == "new"


def test_what_an_older_release_has_closed_may_have_been_of_an_outbox() -> None:
    ledger = Ledger(RUN)
    for incarnation in range(RETIRED_MAX + 20):
        insert(ledger, batch(0, incarnation=10_000 + incarnation))
    upgraded = restarted(ledger)
    with pytest.raises(RetiredError):
        store_of_outbox(upgraded, 3, 0)
    upgraded.on_report(outbox_report(4, sequenced=0), 0.0)
    with pytest.raises(RetiredError):
        store_of_outbox(restarted(upgraded), 3, 0)


def test_nothing_is_forgotten_while_the_archive_takes_nothing() -> None:
    ledger = Ledger(RUN)
    archive = ListedArchive()
    archive.takes = False
    ledger.use_archive(archive)
    refused = CLOSING_MAX + OLD_ACCOUNTS_MAX + 1
    for incarnation in range(refused):
        assert store_of_outbox(ledger, incarnation, 0) == "new"
        ledger.archive_closed()
    with pytest.raises(ArchiveFullError, match="cannot be moved to the replay's archive"):
        store_of_outbox(ledger, refused, 0)
    assert len(ledger.to_bytes()) < STAMP_MAX_BYTES
    assert store_of_outbox(ledger, refused - 1, 0) == "duplicate", "who is here goes on"
    archive.takes = True
    archived(ledger, archive)
    assert store_of_outbox(ledger, refused, 0) == "new"
    assert store_of_outbox(ledger, 0, 0) == "duplicate"


def test_a_report_of_which_all_is_settled_needs_no_account() -> None:
    ledger = Ledger(RUN)
    archive = ListedArchive()
    ledger.use_archive(archive)
    for incarnation in range(20):
        store_of_outbox(ledger, incarnation, 0)
    archived(ledger, archive)
    assert not ledger.is_closed_with_all(outbox_report(3, sequenced=2)), "a batch is missing"
    assert ledger.is_closed_with_all(outbox_report(3, sequenced=1))
    assert not ledger.is_closed_with_all(outbox_report(3, sequenced=1, ended=False))
    assert not ledger.is_closed_with_all(outbox_report(19, sequenced=1)), "it is open"
    assert not ledger.is_closed_with_all(outbox_report(77, sequenced=1)), "it was never here"
    ack = ledger.make_ack("m", 3, epoch=1, learner=2, version=0, first_actor=0)
    assert ack.contiguous == 1
    assert not ledger.has_account("m", 3)


def test_a_ledger_has_the_format_of_before_until_a_manager_has_an_outbox() -> None:
    ledger = Ledger(RUN)
    insert(ledger, batch(0))
    assert unpack(ledger.to_bytes(), STAMP_MAX_BYTES)[0] == 2
    ledger.on_report(outbox_report(8, sequenced=0), 0.0)
    assert unpack(ledger.to_bytes(), STAMP_MAX_BYTES)[0] == 3


def test_a_full_ledger_closes_who_has_been_gone_longest_and_keeps_the_sums() -> None:
    ledger = Ledger(RUN)
    ledger.places.limit = 10
    for place in range(10):
        insert(ledger, batch(0, manager=f"m{place}", incarnation=place), now=float(place))
    with pytest.raises(LedgerFullError, match="the ledger is full") as caught:
        insert(ledger, batch(0, manager="late", incarnation=5000))
    assert caught.value.sender == Sender("late", 5000, None)
    ledger.mark_gone("m4")
    ledger.mark_gone("m3")
    insert(ledger, batch(0, manager="late", incarnation=5000))
    assert "m3" not in ledger.manager_ids()
    assert "m4" in ledger.manager_ids()
    assert ledger.manager_number("late") == 10
    assert ledger.accounting().inserted == 10 * 11


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
    for place in range(CLOSING_MAX):
        account = IncarnationAccount((1 << 62) + place, 1 << 61, (1 << (EXTRAS_MAX - 1)) - 2)
        account.produced = account.dropped = account.window_rows = account.sequenced = 1 << 61
        ledger._kept.add(f"{place:05d}".rjust(64, "y"), account)
    stamp = ledger.to_bytes()
    assert ACCOUNTS_MAX * 200 < len(stamp) <= STAMP_MAX_BYTES
    assert Ledger.from_bytes(stamp, 0.0).to_bytes() == stamp


def test_an_ack_carries_the_limit_and_why_it_does_not_grow() -> None:
    ledger = Ledger(RUN)
    ack = ledger.make_ack(
        "m",
        7,
        epoch=2,
        learner=5,
        version=3,
        first_actor=4,
        reason="the learner waits",
    )
    assert (ack.run_id, ack.epoch, ack.learner, ack.version) == (RUN, 2, 5, 3)
    assert (ack.limit, ack.reason) == (0, "the learner waits")
    assert (ack.contiguous, ack.extras, ack.first_actor) == (0, 0, 4)
