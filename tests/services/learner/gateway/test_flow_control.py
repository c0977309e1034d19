"""Flow control: what managers are granted, how soon they hear, and the memory of the gateway."""

import mmap
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_protocol.account import IncarnationAccount
from vedette_protocol.limits import EXTRAS_MAX
from vedette_rl.replay.limiter import Limiter
from vedette_services.host.system import private_bytes
from vedette_services.learner.gateway.flow_control import (
    ANYWAY_S,
    CHANGED_S,
    AckScheduler,
    Budget,
    CreditGrants,
    FlightLimits,
    gateway_memory_limit,
)

NOW = 100.0
FREE = Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=1)


def use_all(account: IncarnationAccount) -> None:
    """Settle all that it may send."""
    for seq in range(account.contiguous, account.limit):
        account.settle(seq)


def grants(limits: FlightLimits | None = None, limiter: Limiter = FREE) -> CreditGrants:
    return CreditGrants(limiter, limits or FlightLimits(), batch_bytes=100, rows_per_batch=4)


def test_the_budget_is_shared_equally() -> None:
    made = grants()
    accounts = [IncarnationAccount(n) for n in range(3)]
    for number, account in enumerate(accounts):
        made.grant((f"m{number}", number), account, Budget(10), 3, NOW)
    assert [account.limit for account in accounts] == [3, 3, 3]


def test_sessions_of_one_manager_share_its_part() -> None:
    made = grants()
    accounts = [IncarnationAccount(n) for n in range(3)]
    for number, account in enumerate(accounts[:2]):
        made.grant(("m", number), account, Budget(12), 2, NOW, sessions=2)
    made.grant(("other", 2), accounts[2], Budget(12), 2, NOW)
    assert [account.limit for account in accounts] == [3, 3, 6]


def test_a_limit_grows_with_what_is_settled_and_is_never_taken_back() -> None:
    made = grants()
    account = IncarnationAccount(1)
    made.grant(("m", 1), account, Budget(8), 1, NOW)
    for seq in (0, 1, 5):
        account.settle(seq)
    made.grant(("m", 1), account, Budget(8), 1, NOW)
    assert (account.limit, account.open_batches) == (11, 8)
    made.grant(("m", 1), account, Budget(4), 1, NOW)
    made.grant(("m", 1), account, Budget(0, "the learner waits"), 1, NOW)
    assert account.limit == 11


def test_nothing_is_granted_while_inserting_waits() -> None:
    made = grants()
    account = IncarnationAccount(1)
    made.grant(("m", 1), account, Budget(0, "the learner waits"), 1, NOW)
    assert account.limit == 0


def test_what_others_have_not_used_is_not_granted_again() -> None:
    made = grants()
    slow = IncarnationAccount(1)
    fast = IncarnationAccount(2)
    made.grant(("slow", 1), slow, Budget(8), 1, NOW)
    made.grant(("fast", 2), fast, Budget(8), 2, NOW)
    assert (slow.limit, fast.limit) == (8, 1)  # but one batch in any case
    made.retain([("fast", 2)])
    made.grant(("fast", 2), fast, Budget(8), 1, NOW)
    assert fast.limit == 8


def test_who_uses_little_may_have_little_open_and_who_uses_more_gets_more() -> None:
    made = grants()
    idle = IncarnationAccount(1)
    busy = IncarnationAccount(2)
    opened = []
    for step in range(10):
        now = NOW + 0.02 * step
        made.grant(("idle", 1), idle, Budget(4096), 2, now)
        made.grant(("busy", 2), busy, Budget(4096), 2, now)
        opened.append(busy.open_batches)
        use_all(busy)
    assert idle.limit == 8
    assert opened == [8, 16, 48, 144, 432, 1024, 1024, 1024, 1024, 1024]


def test_a_steady_rate_fits_into_what_may_be_open_though_the_way_takes_3_s() -> None:
    made = grants()
    account = IncarnationAccount(1)
    made_batches = 0
    arrives: list[float] = []  # of each batch that was sent
    acks: list[tuple[float, int]] = [(NOW, 0)]  # when they arrive, and the limit
    limit = 0
    for step in range(600):
        now = NOW + 0.1 * step
        made_batches += 1
        limit = max([limit, *(at_limit for at, at_limit in acks if at <= now)])
        while len(arrives) < min(made_batches, limit):
            arrives.append(now + 1.5)
        for seq, at in enumerate(arrives):
            if at <= now and not account.is_settled(seq):
                account.settle(seq)
        made.grant(("m", 1), account, Budget(4096), 1, now)
        acks.append((now + 1.5, account.limit))
    assert made_batches - len(arrives) == 0


def test_what_a_manager_was_granted_while_it_was_fast_keeps_no_other_back_later() -> None:
    made = grants()
    slower = IncarnationAccount(1)
    other = IncarnationAccount(2)
    for step in range(10):
        use_all(slower)
        made.grant(("slower", 1), slower, Budget(100), 1, NOW + 0.02 * step)
    assert slower.open_batches == 100
    made.grant(("other", 2), other, Budget(100), 2, NOW + 0.2)
    assert other.open_batches == 1
    for step in range(50):  # nothing is taken back, and it counts less and less
        now = NOW + 0.2 + 0.1 * step
        made.grant(("slower", 1), slower, Budget(100), 2, now)
        use_all(other)
        made.grant(("other", 2), other, Budget(100), 2, now)
    assert slower.open_batches == 100
    assert other.open_batches == 50


def test_what_may_be_in_flight_is_never_exceeded_by_those_who_were_fast() -> None:
    made = grants(FlightLimits(batches=100))
    accounts = [IncarnationAccount(number) for number in range(20)]
    for number, account in enumerate(accounts):
        for step in range(20):
            use_all(account)
            now = NOW + 10.0 * number + 0.02 * step
            made.grant((f"m{number}", number), account, made.budget(0, 0), 1, now)
    assert sum(account.open_batches for account in accounts) <= 100 + len(accounts)
    assert accounts[0].open_batches == 100


def test_one_that_leaves_may_send_what_it_holds() -> None:
    made = grants()
    account = IncarnationAccount(1)
    made.grant(("m", 1), account, Budget(0, "the learner waits"), 2, NOW, draining=True)
    assert account.limit == EXTRAS_MAX


def test_one_that_leaves_may_send_though_there_are_more_managers_than_batches() -> None:
    made = grants(FlightLimits(batches=2))
    account = IncarnationAccount(1)
    made.grant(("m", 1), account, Budget(0, "the learner waits"), 3, NOW, draining=True)
    assert account.limit == 1


def test_bytes_bound_the_batches_and_the_exact_set_does_too() -> None:
    few = grants(FlightLimits(payload_bytes=1000))
    assert few.budget(0, 0) == Budget(10)
    made = grants()
    account = IncarnationAccount(1)
    for _ in range(20):
        use_all(account)
        made.grant(("m", 1), account, made.budget(0, 0), 1, NOW)
    assert account.open_batches == EXTRAS_MAX


def test_the_budget_is_what_the_limiter_lets_in() -> None:
    limiter = Limiter(1.0, min_size=100, error_buffer=20.0, batch_size=4)
    made = grants(limiter=limiter)
    assert made.budget(120, 20) == Budget(5)  # 20 samples to the edge, in batches of 4
    paused = made.budget(200, 20)
    assert paused.batches == 0
    assert "learner must draw" in paused.reason


def test_the_limiter_has_no_part_while_the_learner_waits_for_more() -> None:
    """Else both sides would wait for each other: no sequence is whole in what it has."""
    limiter = Limiter(1.0, min_size=100, error_buffer=20.0, batch_size=4)
    made = grants(FlightLimits(batches=10), limiter)
    assert made.budget(200, 20, needs_samples=True) == Budget(10)
    assert made.budget(200, 20).batches == 0


@given(st.data())
def test_open_batches_stay_within_the_budget_but_for_one_each(data: st.DataObject) -> None:
    made = grants()
    accounts = [IncarnationAccount(n) for n in range(data.draw(st.integers(1, 6)))]
    most = 0
    for _ in range(30):
        account = data.draw(st.sampled_from(accounts))
        for seq in range(account.limit):
            if not account.is_settled(seq) and data.draw(st.booleans()):
                account.settle(seq)
        before = account.limit
        budget = data.draw(st.integers(1, 40))
        made.grant(("m", account.incarnation), account, Budget(budget), len(accounts), NOW)
        assert account.limit >= before
        assert account.open_batches >= 1
        most = max(most, budget)
        assert sum(a.open_batches for a in accounts) <= most + len(accounts)


@pytest.mark.parametrize("managers", [1, 7, 4096, 10_000])
def test_everybody_may_have_a_batch_open(managers: int) -> None:
    assert grants().share(Budget(4096), managers) == max(1, 4096 // managers)


MANY = [f"m{number}" for number in range(50)]
MIB = 1 << 20


def pace(batch_bytes: int, share: int = 80) -> AckScheduler:
    """At 0 s everybody was told everything."""
    made = AckScheduler(FlightLimits(1024, 64 * MIB), batch_bytes)
    made.on_sent(dict.fromkeys(MANY, share), 0.0)
    return made


def test_who_has_used_a_quarter_of_its_credit_hears_at_once_however_many_there_are() -> None:
    waits = pace(3_000)
    for _ in range(20):
        waits.on_batch("m1")
    waits.on_batch("m2")
    assert waits.due_acks(MANY, 1.5 * CHANGED_S) == ["m1"]
    assert {"m1", "m2"} <= set(waits.due_acks(MANY, ANYWAY_S))


def test_who_may_have_few_batches_open_hears_after_few() -> None:
    waits = pace(480_000, 10)
    for _ in range(3):
        waits.on_batch("m1")
    assert waits.due_acks(MANY, 1.5 * CHANGED_S) == ["m1"]


def test_each_hears_by_what_it_may_have_open_itself() -> None:
    waits = pace(3_000)
    waits.on_sent({"m1": 8, "m2": 80}, 0.0)
    for manager in ("m1", "m2"):
        waits.on_batch(manager)
        waits.on_batch(manager)
    assert waits.due_acks(MANY, 1.5 * CHANGED_S) == ["m1"]


def test_news_that_cannot_wait_does_not() -> None:
    waits = pace(3_000)
    waits.expedite("m3")
    assert waits.due_acks(MANY, 0.5 * CHANGED_S) == []
    assert waits.due_acks(MANY, 1.5 * CHANGED_S) == ["m3"]


def test_what_nobody_is_there_to_hear_is_no_news() -> None:
    waits = pace(3_000)
    waits.on_batch("gone")
    assert waits.unacked
    assert waits.due_acks(MANY, 0.5 * CHANGED_S) == []
    assert not waits.unacked


def test_all_are_sent_an_ack_at_least_so_often_and_who_is_gone_is_not() -> None:
    waits = pace(3_000)
    assert waits.due_acks(MANY[:2], 0.9 * ANYWAY_S) == []
    assert waits.due_acks(MANY[:2], ANYWAY_S) == MANY[:2]
    waits.on_sent({MANY[0]: 80}, ANYWAY_S)
    assert waits.due_acks(MANY[:2], 1.1 * ANYWAY_S) == MANY[1:2]


def test_thousands_are_sent_acks_without_news_less_often() -> None:
    waits = AckScheduler(None, 3_000)
    many = [f"m{number}" for number in range(1000)]
    waits.on_sent(dict.fromkeys(many, 80), 0.0)
    assert waits.due_acks(many, 0.49) == []
    assert waits.due_acks(many, 0.51) == many


def test_who_may_send_nothing_hears_soon_that_it_may_again() -> None:
    waits = AckScheduler(None, 3_000)
    waits.on_sent({"m1": 0, "m2": 0, "m3": 8}, 0.0, stopped=["m1", "m2"])
    assert waits.is_awaited
    living = ["m1", "m2", "m3"]
    assert waits.due_acks(living, CHANGED_S, grants=False) == []
    assert waits.due_acks(living, CHANGED_S) == ["m1", "m2"]
    waits.on_sent({"m1": 1}, CHANGED_S)
    assert waits.due_acks(["m1", "m3"], 2 * CHANGED_S) == []  # the other has gone
    assert not waits.is_awaited


def test_nothing_is_kept_of_managers_that_came_and_went() -> None:
    waits = AckScheduler(None, 3_000)
    for number in range(100):
        manager = f"m{number}"
        waits.expedite_joiner(manager)
        assert waits.due_acks([manager], float(number)) == [manager]
        waits.on_sent({manager: 8}, float(number))
        waits.expedite_joiner(manager)  # it subscribes once more, and is gone
        waits.due_acks([], number + 0.5)
    assert len(waits._granted) == 0


def test_managers_of_the_gateway_before_hear_at_the_first_poll() -> None:
    assert AckScheduler(None, 3_000, ["a", "b"]).due_acks(["a", "b", "c"], 0.0) == ["a", "b"]


def test_a_joiner_hears_at_the_first_poll_though_it_was_sent_an_ack_a_moment_ago() -> None:
    waits = pace(3_000)
    waits.expedite_joiner("m3")
    assert waits.due_acks(MANY, 0.1 * CHANGED_S) == ["m3"]


def test_a_manager_alone_hears_soon_enough_that_its_window_does_not_bound_it() -> None:
    waits = pace(3_000)
    alone = MANY[:1]
    for _ in range(20):
        waits.on_batch("m0")
    assert waits.due_acks(alone, 0.2 * CHANGED_S) == []
    assert waits.due_acks(alone, 0.3 * CHANGED_S) == alone


def test_the_limit_leaves_room_for_what_is_in_flight_and_for_models() -> None:
    small = gateway_memory_limit(0)
    assert small > 2 * FlightLimits().payload_bytes
    assert gateway_memory_limit(3 << 30) >= small + (8 << 30)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says it")
def test_what_a_process_holds_grows_with_its_own_memory_alone() -> None:
    before = private_bytes(os.getpid())
    # Not from the allocator, which may hand out memory that was freed, and keep what is freed.
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        grown = private_bytes(os.getpid()) - before
    assert 60 << 20 < grown < 80 << 20
    assert private_bytes(2**22 + 1) == 0
