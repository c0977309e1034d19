"""The split of the credit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_protocol.credit import Credit, share_credit


def test_credit_is_shared_equally() -> None:
    assert share_credit(10, 900, ["b", "a", "c"]) == {
        "a": Credit(4, 300),
        "b": Credit(3, 300),
        "c": Credit(3, 300),
    }


def test_nobody_gets_credit_while_the_learner_waits_and_all_hear_why() -> None:
    assert share_credit(10, 900, ["a", "b"], "the replay is full") == {
        "a": Credit(0, 0, "the replay is full"),
        "b": Credit(0, 0, "the replay is full"),
    }


def test_without_managers_there_is_nothing_to_share() -> None:
    assert share_credit(10, 900, []) == {}


def test_a_budget_that_would_stop_everybody_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="stops all"):
        share_credit(0, 100, ["a"])


@given(st.integers(1, 500), st.integers(1, 10**6), st.integers(1, 60))
def test_everybody_makes_progress_and_the_budget_holds_but_for_one_batch_each(
    batches: int, size: int, managers: int
) -> None:
    credits = share_credit(batches, size, [f"m{place}" for place in range(managers)]).values()
    assert all(credit.batches >= 1 and credit.bytes >= 1 for credit in credits)
    assert sum(credit.batches for credit in credits) <= max(batches, managers)
    assert sum(credit.bytes for credit in credits) <= max(size, managers)
    assert max(c.batches for c in credits) - min(c.batches for c in credits) <= 1
