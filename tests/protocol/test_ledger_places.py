"""Who finds a place in a ledger that is full, and whose account is closed for it."""

from __future__ import annotations

import contextlib

import pytest
from wire_examples import example_batch

from vedette_protocol.errors import LedgerFullError, RetiredError
from vedette_protocol.ledger import Ledger

RUN = "run"
PLACES = 40


def ledger_for(*keys: str, places: int = PLACES) -> Ledger:
    ledger = Ledger(RUN)
    ledger.places.limit = places
    ledger.places.admit(keys)
    return ledger


def join(ledger: Ledger, manager: str, key: str = "", now: float = 0.0) -> None:
    """A manager whose incarnation follows from its id, with a sample in the replay."""
    incarnation = hash_of(manager)
    ledger.mark_alive(manager, incarnation, now, key)
    ledger.account(manager, incarnation).grant(1)
    batch = example_batch(10)
    ledger.record_batch(
        batch._replace(run_id=RUN, manager=manager, incarnation=incarnation, seq=0, base=0), now
    )


def hash_of(manager: str) -> int:
    return int.from_bytes(manager.encode()[-7:])


def fill(ledger: Ledger, key: str, most: int = 1100) -> int:
    """Join under one id after the other until there is no place; return how many came in."""
    for number in range(most):
        try:
            join(ledger, f"{key}{number}", key)
        except LedgerFullError:
            return number
    return most


def test_a_key_fills_what_is_not_reserved_and_others_find_their_places() -> None:
    ledger = ledger_for("evil", "lab", "pod", "learner")
    assert ledger.places.reserved == 5
    assert fill(ledger, "evil") == PLACES - 3 * 5
    assert fill(ledger, "lab") == 5
    assert fill(ledger, "pod") == 5
    assert fill(ledger, "learner") == 5
    assert len(ledger.alive_incarnations()) == PLACES


def test_300_managers_share_a_key() -> None:
    ledger = ledger_for("actors", "learner", places=2048)
    assert fill(ledger, "actors", 300) == 300
    assert len(ledger.alive_incarnations()) == 300


@pytest.mark.parametrize("silent", [False, True])
def test_ids_without_end_close_no_account_of_a_key_with_fewer(silent: bool) -> None:
    ledger = ledger_for("evil", "lab", "learner")
    for number in range(10):
        join(ledger, f"lab{number}", "lab", now=1.0)
    if silent:
        for number in range(10):
            ledger.mark_gone(f"lab{number}")
    for number in range(1100):
        with_place = f"e{number}"
        try:
            join(ledger, with_place, "evil", now=100.0 + number)
        except LedgerFullError:
            continue
        ledger.mark_gone(with_place)  # so that each displaces the one before
    for number in range(10):
        ledger.mark_alive(f"lab{number}", hash_of(f"lab{number}"), 2000.0, "lab")
    assert ledger.accounting("lab0").inserted == 10


def test_a_newcomer_displaces_one_that_is_gone_of_the_key_that_holds_most() -> None:
    ledger = ledger_for("evil", "lab", "learner")
    join(ledger, "old", "lab", now=0.0)
    ledger.mark_gone("old")
    held = fill(ledger, "evil")
    ledger.mark_gone("evil3")
    for number in range(ledger.places.reserved):
        join(ledger, f"lab{number}", "lab", now=5.0)
    assert "evil3" not in ledger.manager_ids()
    assert "old" in ledger.manager_ids()
    assert ledger.places.held("evil") == held - 1


def test_without_keys_a_newcomer_displaces_one_that_is_gone_and_never_a_living_one() -> None:
    ledger = ledger_for(places=3)
    for at, manager in enumerate(("a", "b", "c")):
        join(ledger, manager, now=float(at))
    with pytest.raises(LedgerFullError, match=r"all 3 are taken.*raise learner.max_managers"):
        join(ledger, "d")
    ledger.mark_gone("b")
    join(ledger, "d")
    assert ledger.manager_ids() == ["a", "c", "d"]
    with pytest.raises(RetiredError, match="silent while other managers needed its place"):
        join(ledger, "b")


def test_a_whole_fleet_that_is_killed_and_starts_again_at_once_finds_its_places() -> None:
    ledger = ledger_for(places=100)
    assert fill(ledger, "m", 100) == 100
    numbers = [ledger.manager_number(f"m{number}") for number in range(100)]
    for number in range(100):
        ledger.mark_alive(f"m{number}", 1_000_000 + number, 1.0)
    assert len(ledger.alive_incarnations()) == 100
    assert [ledger.manager_number(f"m{number}") for number in range(100)] == numbers
    with pytest.raises(LedgerFullError):
        ledger.mark_alive("late", 7, 1.0)


@pytest.mark.parametrize("restarts", [1, 200])
def test_a_key_whose_managers_start_again_leaves_others_their_places(restarts: int) -> None:
    ledger = ledger_for("evil", "lab", "learner", places=6)
    held = fill(ledger, "evil")
    for number in range(restarts):
        for manager in range(held):
            ledger.mark_alive(f"evil{manager}", 1_000_000 + 100 * number + manager, 0.1, "evil")
    join(ledger, "m", "lab", now=0.2)
    join(ledger, "trainer", "learner", now=0.2)
    assert {("m", hash_of("m")), ("trainer", hash_of("trainer"))} < set(ledger.alive_incarnations())
    assert sum(map(ledger.places.held, ("evil", "lab", "learner"))) <= 6 + 64
    with pytest.raises(LedgerFullError):
        join(ledger, "m2", "lab", now=0.2)


def test_a_manager_of_which_nothing_came_goes_first_and_comes_back_as_if_it_were_new() -> None:
    ledger = ledger_for(places=2)
    join(ledger, "worker", now=0.0)
    ledger.mark_alive("idle", 7, 5.0)
    ledger.mark_gone("worker")
    ledger.mark_gone("idle")
    join(ledger, "late")
    assert ledger.manager_ids() == ["worker", "late"]
    ledger.mark_gone("late")
    ledger.mark_alive("idle", 7, 6.0)
    assert ("idle", 7) in ledger.alive_incarnations()


def test_an_id_belongs_to_the_key_that_opened_its_account_also_after_a_restart() -> None:
    ledger = ledger_for("lab", "other", "learner")
    join(ledger, "m", "lab")
    for one in (ledger, Ledger.from_bytes(ledger.to_bytes(), 0.0)):
        one.places.admit(["lab", "other", "learner"])
        one.mark_gone("m")
        assert one.may_use("m", "lab")
        assert not one.may_use("m", "other")


def test_an_id_of_which_nothing_came_is_free_once_its_manager_is_gone() -> None:
    ledger = ledger_for("squatter", "lab")
    ledger.mark_alive("m", 1, 0.0, "squatter")
    assert not ledger.may_use("m", "lab")
    ledger.mark_gone("m")
    assert ledger.may_use("m", "lab")
    join(ledger, "m", "lab")
    assert not ledger.may_use("m", "squatter")
    assert (ledger.places.held("squatter"), ledger.places.held("lab")) == (0, 1)


def test_the_ids_of_a_key_that_was_removed_are_free() -> None:
    ledger = ledger_for("removed", "lab")
    join(ledger, "m", "removed")
    ledger.mark_gone("m")
    assert not ledger.may_use("m", "lab")
    ledger.places.admit(["lab"])
    assert ledger.may_use("m", "lab")


def test_an_incarnation_that_is_retired_stays_out_though_nothing_came_of_it() -> None:
    ledger = ledger_for()
    ledger.mark_alive("m", 1, 0.0)
    ledger.mark_alive("m", 2, 0.0)
    ledger.retire("m", 2)
    with pytest.raises(RetiredError, match="two managers use the same id"):
        ledger.mark_alive("m", 2, 1.0)
    ledger.mark_alive("m", 1, 1.0)
    assert ledger.alive_incarnations() == [("m", 1)]


def test_a_manager_that_starts_again_keeps_its_place_in_a_full_table() -> None:
    ledger = ledger_for(places=2)
    join(ledger, "a")
    join(ledger, "b")
    ledger.mark_alive("a", 99, 1.0)
    assert set(ledger.alive_incarnations()) == {("a", 99), ("b", hash_of("b"))}
    join(ledger, "b")  # the earlier one of two is still served
    for incarnation in range(1000, 2000):
        ledger.mark_alive("a", incarnation, 2.0)
    assert ledger.has_account("b", hash_of("b"))
    with pytest.raises(LedgerFullError):
        join(ledger, "c", now=100.0)


def test_the_earlier_one_of_two_with_one_id_keeps_its_account_when_a_third_manager_comes() -> None:
    ledger = ledger_for(places=1)
    join(ledger, "a")
    ledger.mark_alive("a", 99, 1.0)  # now the first one is taken for gone, until it reports again
    with pytest.raises(LedgerFullError):
        join(ledger, "b", now=1.1)
    join(ledger, "a", now=1.2)
    assert ("a", hash_of("a")) in ledger.alive_incarnations()


@pytest.mark.parametrize("removed", [False, True])
def test_ids_that_are_handed_over_take_no_place_that_is_reserved_for_another_key(
    removed: bool,
) -> None:
    ledger = ledger_for("evil", "lab", "learner", places=400)
    for number in range(64):
        ledger.mark_alive(f"lab{number}", number, 0.0, "lab")  # and nothing comes of them
    held = fill(ledger, "evil")
    for number in range(64):
        ledger.mark_gone(f"lab{number}")
    if removed:
        ledger.places.admit(["evil", "learner"])
    for number in range(64):
        assert ledger.may_use(f"lab{number}", "evil")
        with contextlib.suppress(LedgerFullError):
            ledger.mark_alive(f"lab{number}", 1000 + number, 1.0, "evil")
    if not removed:
        assert ledger.places.held("evil") == held
        for number in range(64):
            join(ledger, f"desk{number}", "lab", now=2.0)
    assert fill(ledger, "learner") >= ledger.places.reserved
    assert sum(map(ledger.places.held, ("evil", "lab", "learner"))) <= 400 + 64


def test_the_name_of_an_admitted_key_is_an_id_that_no_other_key_may_take() -> None:
    ledger = ledger_for("gpu-2", "lab", "learner")
    for key, may in (("lab", False), ("learner", False), ("gpu-2", True), ("", True)):
        assert ledger.may_use("gpu-2", key) is may
    assert ledger.may_use("gpu-3", "lab")


def test_who_used_an_id_before_a_key_had_its_name_keeps_it() -> None:
    ledger = ledger_for("lab", "learner")
    join(ledger, "gpu-2", "lab")
    ledger.places.admit(["lab", "learner", "gpu-2"])
    ledger.mark_gone("gpu-2")
    assert ledger.may_use("gpu-2", "lab")
    assert not ledger.may_use("gpu-2", "gpu-2")


def test_a_newcomer_finds_the_place_that_one_replaced_a_moment_ago_will_leave() -> None:
    ledger = ledger_for(places=100)
    assert fill(ledger, "m", 99) == 99
    for number in range(10):
        ledger.mark_alive(f"m{number}", 1_000_000 + number, 1.0)
    join(ledger, "late", now=2.0)
    with pytest.raises(LedgerFullError):
        join(ledger, "later", now=2.0)
    assert len(ledger.alive_incarnations()) == 100
    ledger.mark_alive("m0", 2_000_000, 8.0)  # that of five seconds ago is closed first
    assert ledger.places.held("") <= 110
