"""The sender's window by itself."""

from __future__ import annotations

import pytest
from wire_examples import example_batch

from vedette_protocol.errors import AckError, ProtocolError, WindowFullError
from vedette_protocol.messages import Ack
from vedette_protocol.send_window import OnFull, Window

SCHEMA = "0123456789abcdef"


def window(on_full: OnFull = "block", batches: int = 8) -> Window:
    return Window("m", 7, "run", SCHEMA, max_batches=batches, max_bytes=800, on_full=on_full)


def ack(contiguous: int = 0, extras: int = 0, **changes: object) -> Ack:
    fields: dict[str, object] = {
        "run_id": "run",
        "epoch": 1,
        "learner": 50,
        "manager": "m",
        "incarnation": 7,
        "contiguous": contiguous,
        "extras": extras,
        "rejected_batches": 0,
        "rejected_rows": 0,
        "limit": 100,
        "version": 0,
        "first_actor": 0,
    }
    return Ack(**(fields | changes))  # type: ignore[arg-type]  # a test's shorthand


def sending(held: Window, count: int) -> Window:
    """A window that has sent `count` batches of 10 rows and 100 bytes."""
    held.on_ack(ack(), 0.0)
    for _ in range(count):
        held.add_batch(3, 1, 9, 10, bytes(100))
    assert len(held.next_batches(0.0)) == count
    return held


def test_nothing_is_sent_before_an_ack_grants_a_limit() -> None:
    held = window()
    held.add_batch(0, 1, 0, 10, bytes(100))
    assert held.next_batches(0.0) == []
    held.on_ack(ack(), 0.0)
    assert [batch.seq for batch in held.next_batches(0.0)] == [0]


def test_a_batch_says_what_it_was_offered_with() -> None:
    held = window()
    held.on_ack(ack(), 0.0)
    held.add_batch(3, 2, 1500, 10, b"payload", 12)
    assert held.next_batches(0.0) == [
        example_batch()._replace(
            run_id="run",
            manager="m",
            incarnation=7,
            seq=0,
            actor=3,
            epoch=2,
            version=1500,
            schema=SCHEMA,
            rows=10,
            payload=b"payload",
            base=0,
            env_steps=12,
        )
    ]


def test_numbers_below_the_limit_are_sent_and_no_others() -> None:
    held = window()
    for _ in range(5):
        held.add_batch(0, 1, 0, 10, bytes(100))
    held.on_ack(ack(limit=2), 0.0)
    assert [batch.seq for batch in held.next_batches(0.0)] == [0, 1]
    held.on_ack(ack(contiguous=1, limit=2), 0.1)
    assert held.next_batches(0.1) == []
    held.on_ack(ack(contiguous=1, limit=3), 0.2)
    assert [batch.seq for batch in held.next_batches(0.2)] == [2]


def test_a_smaller_limit_takes_nothing_back_and_the_report_says_the_highest() -> None:
    held = window()
    for _ in range(3):
        held.add_batch(0, 1, 0, 10, bytes(100))
    held.on_ack(ack(limit=2), 0.0)
    held.on_ack(ack(limit=0, learner=51), 0.1)
    assert [batch.seq for batch in held.next_batches(0.1)] == [0, 1]
    assert held.make_report("host", "running").limit == 2


def test_what_is_sent_again_needs_no_further_grant() -> None:
    held = sending(window(), 2)
    held.resend_all()
    held.on_ack(ack(limit=0), 0.0)
    assert [batch.seq for batch in held.next_batches(0.0)] == [0, 1]


def test_a_batch_carries_its_environment_steps() -> None:
    held = window()
    held.on_ack(ack(), 0.0)
    held.add_batch(0, 1, 0, 10, bytes(100))
    held.add_batch(0, 1, 0, 10, bytes(100), env_steps=37)
    assert [batch.env_steps for batch in held.next_batches(0.0)] == [10, 37]


def test_an_ack_frees_what_is_contiguous_and_the_extras() -> None:
    held = sending(window(), 6)
    assert held.on_ack(ack(contiguous=2, extras=0b1010), 0.0) == 40
    assert (held.batches, held.bytes, held.settled, held.base) == (2, 200, 40, 2)
    held.resend_all()
    assert [(batch.seq, batch.base) for batch in held.next_batches(0.0)] == [(2, 2), (4, 2)]


def test_an_older_ack_with_extras_frees_what_it_means_and_nothing_else() -> None:
    held = sending(window(), 6)
    held.on_ack(ack(contiguous=3), 0.0)
    held.on_ack(ack(contiguous=1, extras=0b11010), 0.0)  # 2, 4 and 5
    held.resend_all()
    assert [batch.seq for batch in held.next_batches(0.0)] == [3]


def test_an_older_ack_frees_nothing_again() -> None:
    held = sending(window(), 4)
    held.on_ack(ack(contiguous=3), 0.0)
    assert held.on_ack(ack(contiguous=1), 0.0) == 0
    assert held.base == 3


@pytest.mark.parametrize(
    "foreign",
    [
        {"manager": "n"},
        {"incarnation": 8},
        {"run_id": "other"},
        {"epoch": 0},
    ],
)
def test_an_ack_for_somebody_else_or_of_an_older_epoch_is_ignored(
    foreign: dict[str, object],
) -> None:
    held = sending(window(), 2)
    assert held.on_ack(ack(contiguous=2, **foreign), 0.0) == 0
    assert held.batches == 2


@pytest.mark.parametrize("beyond", [ack(contiguous=3), ack(contiguous=0, extras=0b100)])
def test_an_ack_beyond_what_was_sent_is_an_error_and_frees_nothing(beyond: Ack) -> None:
    held = sending(window(), 2)
    with pytest.raises(AckError, match="below 3, but only those below 2") as caught:
        held.on_ack(beyond, 0.0)
    assert isinstance(caught.value, ProtocolError)
    assert held.batches == 2


@pytest.mark.parametrize("new", [{"epoch": 2}, {"learner": 51}])
def test_a_new_learner_or_epoch_makes_everything_unsettled_go_again(new: dict[str, int]) -> None:
    held = sending(window(), 3)
    held.on_ack(ack(contiguous=1, **new), 1.0)  # type: ignore[arg-type]  # a test's shorthand
    assert [batch.seq for batch in held.next_batches(1.0)] == [1, 2]
    assert held.stats()["resent"] == 2


def test_a_late_ack_of_a_former_learner_does_not_deafen_the_window() -> None:
    held = sending(window(), 3)
    held.on_ack(ack(learner=51), 1.0)
    held.on_ack(ack(contiguous=1, learner=50), 1.1)
    assert held.on_ack(ack(contiguous=3, learner=51), 1.2) == 20
    assert held.next_batches(1.2) == []


def test_what_is_sent_again_goes_before_what_is_new_and_in_order() -> None:
    held = sending(window(), 3)
    held.add_batch(0, 1, 0, 10, bytes(100))
    held.resend_all()
    assert [batch.seq for batch in held.next_batches(0.0)] == [0, 1, 2, 3]


def test_sending_again_twice_sends_once() -> None:
    held = sending(window(), 3)
    assert held.resend_all() == 3
    assert held.resend_all() == 0
    assert len(held.next_batches(0.0)) == 3


def test_what_the_socket_did_not_take_goes_again() -> None:
    held = window()
    held.on_ack(ack(), 0.0)
    for _ in range(3):
        held.add_batch(0, 1, 0, 10, bytes(100))
    held.put_back(held.next_batches(0.0)[1:])
    assert held.outstanding == 1
    assert [batch.seq for batch in held.next_batches(0.0)] == [1, 2]


def test_a_batch_that_acks_pass_over_for_five_seconds_is_sent_again() -> None:
    held = sending(window(), 2)
    held.on_ack(ack(extras=0b10), 4.9)
    assert held.resend_stalled(5.0) == 0
    held.on_ack(ack(extras=0b10), 5.0)
    assert held.resend_stalled(5.0) == 1
    assert [batch.seq for batch in held.next_batches(5.0)] == [0]
    assert held.resend_stalled(5.1) == 0


def test_nothing_is_sent_again_into_silence() -> None:
    held = sending(window(), 2)
    held.on_ack(ack(), 6.0)
    assert held.resend_stalled(11.0) == 0


def test_a_full_window_refuses_when_it_blocks() -> None:
    held = window(batches=2)
    held.add_batch(0, 1, 0, 10, bytes(100))
    held.add_batch(0, 1, 0, 10, bytes(100))
    assert not held.has_room(1)
    with pytest.raises(WindowFullError, match="no room in the window for 100 bytes"):
        held.add_batch(0, 1, 0, 10, bytes(100))
    assert held.produced == 20


def test_a_full_window_drops_the_oldest_that_was_never_sent() -> None:
    held = window("drop_oldest", batches=3)
    held.on_ack(ack(limit=1), 0.0)
    for version in range(3):
        held.add_batch(0, 1, version, 10, bytes(100))
    assert [batch.version for batch in held.next_batches(0.0)] == [0]
    assert held.add_batch(0, 1, 3, 7, bytes(100)) == 10
    held.on_ack(ack(), 0.0)
    assert [(batch.seq, batch.version) for batch in held.next_batches(0.0)] == [(1, 2), (2, 3)]
    assert (held.produced, held.dropped, held.rows) == (37, 10, 27)


def test_a_window_of_sent_batches_drops_the_offered_one() -> None:
    held = sending(window("drop_oldest", batches=3), 3)
    assert held.add_batch(0, 1, 0, 7, bytes(100)) == 7
    assert (held.batches, held.dropped) == (3, 7)


def test_a_batch_that_can_never_fit_is_refused_whatever_the_policy() -> None:
    with pytest.raises(WindowFullError):
        window("drop_oldest").add_batch(0, 1, 0, 10, bytes(801))


def test_abandoning_drops_what_was_never_sent_only() -> None:
    held = sending(window(), 2)
    held.add_batch(0, 1, 0, 10, bytes(100))
    assert held.drop_unsent() == 10
    report = held.make_report("host", "gone")
    assert (report.produced, report.dropped, report.window_rows) == (30, 10, 20)


def test_a_report_counts_what_the_window_counts() -> None:
    held = sending(window(), 3)
    held.on_ack(ack(contiguous=1, rejected_batches=1, rejected_rows=10), 0.0)
    held.add_batch(0, 1, 0, 5, bytes(60))
    report = held.make_report("host", "running")
    assert (report.run_id, report.manager, report.incarnation) == ("run", "m", 7)
    assert (report.produced, report.dropped) == (35, 0)
    assert (report.window_batches, report.window_rows, report.window_bytes) == (3, 25, 260)
    assert (report.sequenced, report.base) == (3, 1)
    assert held.stats()["rejected"] == 10


def test_a_window_that_holds_nothing_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        window(batches=0)


def test_what_is_settled_or_to_be_sent_again_is_not_outstanding() -> None:
    held = sending(window(), 4)
    assert held.outstanding == 4
    held.on_ack(ack(contiguous=1), 0.0)
    assert held.outstanding == 3
    held.resend_all()
    assert held.outstanding == 0
    held.on_ack(ack(contiguous=2), 0.0)
    assert len(held.next_batches(0.0)) == 2
    assert held.outstanding == 2


def test_unsent_batches_that_are_too_old_are_dropped_and_counted() -> None:
    held = Window("m", 7, "run", SCHEMA, max_batches=99, max_bytes=9999, max_age_s=30.0)
    held.on_ack(ack(limit=1), 0.0)
    for second in range(40):
        held.add_batch(0, 1, 0, 10, bytes(10), now=float(second))
        held.next_batches(float(second))
    assert held.drop_old(40.0) == 90  # those of seconds 1 to 9; that of 0 was sent
    assert (held.dropped, held.batches, held.bytes) == (90, 31, 310)
    assert held.drop_old(40.0) == 0
    held.on_ack(ack(1, limit=99), 40.0)
    assert len(held.next_batches(40.0)) == 30
    assert held.drop_old(100.0) == 0


def test_the_delay_is_the_age_of_the_oldest_batch_that_is_not_settled() -> None:
    held = window()
    assert held.delay_s(9.0) == 0.0
    held.on_ack(ack(limit=2), 0.0)
    for second in (1, 2, 3):
        held.add_batch(0, 1, 0, 10, bytes(10), now=float(second))
    assert held.delay_s(9.0) == 8.0
    held.next_batches(9.0)
    assert held.delay_s(10.0) == 9.0
    held.resend_all()
    assert held.delay_s(11.0) == 10.0
    held.on_ack(ack(1, limit=2), 11.0)
    assert held.delay_s(11.0) == 9.0
    held.on_ack(ack(2, limit=2), 11.0)
    assert held.delay_s(11.0) == 8.0  # not sent
    held.on_ack(ack(2, limit=9), 11.0)
    held.next_batches(11.0)
    held.on_ack(ack(3, limit=9), 11.0)
    assert held.delay_s(11.0) == 0.0
