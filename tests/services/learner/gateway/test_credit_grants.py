"""The limits that managers are granted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_protocol.account import IncarnationAccount
from vedette_protocol.limits import EXTRAS_MAX
from vedette_rl.replay.limiter import Limiter
from vedette_services.learner.gateway.flow_control import Budget, CreditGrants, FlightLimits

FREE = Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=1)


def grants(limits: FlightLimits | None = None, limiter: Limiter = FREE) -> CreditGrants:
    return CreditGrants(limiter, limits or FlightLimits(), batch_bytes=100, rows_per_batch=4)


def test_the_budget_is_shared_equally() -> None:
    made = grants()
    accounts = [IncarnationAccount(n) for n in range(3)]
    for number, account in enumerate(accounts):
        made.grant((f"m{number}", number), account, Budget(10), 3)
    assert [account.limit for account in accounts] == [3, 3, 3]


def test_a_limit_grows_with_what_is_settled_and_is_never_taken_back() -> None:
    made = grants()
    account = IncarnationAccount(1)
    made.grant(("m", 1), account, Budget(10), 1)
    for seq in (0, 1, 5):
        account.settle(seq)
    made.grant(("m", 1), account, Budget(10), 1)
    assert (account.limit, account.open_batches) == (13, 10)
    made.grant(("m", 1), account, Budget(4), 1)
    made.grant(("m", 1), account, Budget(0, "the learner waits"), 1)
    assert account.limit == 13


def test_nothing_is_granted_while_inserting_waits() -> None:
    made = grants()
    account = IncarnationAccount(1)
    made.grant(("m", 1), account, Budget(0, "the learner waits"), 1)
    assert account.limit == 0


def test_what_others_have_not_used_is_not_granted_again() -> None:
    made = grants()
    slow = IncarnationAccount(1)
    fast = IncarnationAccount(2)
    made.grant(("slow", 1), slow, Budget(8), 1)
    made.grant(("fast", 2), fast, Budget(8), 2)
    assert (slow.limit, fast.limit) == (8, 1)  # but one batch in any case
    made.retain([("fast", 2)])
    made.grant(("fast", 2), fast, Budget(8), 1)
    assert fast.limit == 8


def test_one_that_leaves_may_send_what_it_holds() -> None:
    made = grants()
    account = IncarnationAccount(1)
    made.grant(("m", 1), account, Budget(0, "the learner waits"), 2, draining=True)
    assert account.limit == EXTRAS_MAX


def test_one_that_leaves_may_send_though_there_are_more_managers_than_batches() -> None:
    made = grants(FlightLimits(batches=2))
    account = IncarnationAccount(1)
    made.grant(("m", 1), account, Budget(0, "the learner waits"), 3, draining=True)
    assert account.limit == 1


def test_bytes_bound_the_batches_and_the_exact_set_does_too() -> None:
    few = grants(FlightLimits(payload_bytes=1000))
    assert few.budget(0, 0) == Budget(10)
    made = grants()
    account = IncarnationAccount(1)
    made.grant(("m", 1), account, made.budget(0, 0), 1)
    assert account.limit == EXTRAS_MAX


def test_the_budget_is_what_the_limiter_lets_in() -> None:
    limiter = Limiter(1.0, min_size=100, error_buffer=20.0, batch_size=4)
    made = grants(limiter=limiter)
    assert made.budget(120, 20) == Budget(5)  # 20 samples to the edge, in batches of 4
    paused = made.budget(200, 20)
    assert paused.batches == 0
    assert "wait for the learner" in paused.reason == made.reason


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
        made.grant(("m", account.incarnation), account, Budget(budget), len(accounts))
        assert account.limit >= before
        assert account.open_batches >= 1
        most = max(most, budget)
        assert sum(a.open_batches for a in accounts) <= most + len(accounts)


@pytest.mark.parametrize("managers", [1, 7, 4096, 10_000])
def test_everybody_may_have_a_batch_open(managers: int) -> None:
    assert grants().share(Budget(4096), managers) == max(1, 4096 // managers)
