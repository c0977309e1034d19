"""Actor numbers over all hosts."""

from vedette_services.run.ring_stamp import ActorNumbers


def test_managers_get_numbers_side_by_side() -> None:
    slots = ActorNumbers()
    assert [slots.assign("a", 2), slots.assign("b", 3), slots.assign("c", 1)] == [0, 2, 5]


def test_a_manager_keeps_its_numbers_when_asked_again() -> None:
    slots = ActorNumbers()
    slots.assign("a", 2)
    first = slots.assign("b", 2)
    slots.release("a")
    assert slots.assign("b", 2) == first


def test_freed_numbers_are_used_again_by_whoever_fits() -> None:
    slots = ActorNumbers()
    for manager in "abc":
        slots.assign(manager, 2)
    slots.release("b")
    assert slots.assign("large", 3) == 6
    assert slots.assign("small", 1) == 2
    assert slots.assign("other", 1) == 3


def test_a_manager_that_grows_moves_to_where_it_fits() -> None:
    slots = ActorNumbers()
    slots.assign("a", 1)
    slots.assign("b", 1)
    assert slots.assign("a", 4) == 2


def test_numbers_survive_a_restart_of_the_gateway() -> None:
    slots = ActorNumbers()
    slots.assign("a", 2)
    slots.assign("b", 1)
    again = ActorNumbers.from_bytes(slots.to_bytes())
    assert (again.assign("b", 1), again.assign("c", 1)) == (2, 3)


def test_no_stamp_is_no_numbers() -> None:
    assert ActorNumbers.from_bytes(b"").assign("a", 1) == 0
