"""How long the gateway lets samples come together."""

import pytest

from vedette_services.learner.gateway import ReceiveBackoff


def test_who_has_taken_nothing_yet_does_not_rest() -> None:
    assert ReceiveBackoff().remaining_ms(100.0) == 0


def test_a_rest_is_two_milliseconds_and_is_over_when_they_are() -> None:
    rest = ReceiveBackoff()
    rest.start(100.0)
    assert [rest.remaining_ms(now) for now in (100.0, 100.0012, 100.0021)] == [2, 1, 0]


@pytest.mark.parametrize(("managers", "left_ms"), [(1, 2), (64, 4), (1000, 5)])
def test_it_is_longer_where_managers_are_many_but_not_without_end(
    managers: int, left_ms: int
) -> None:
    rest = ReceiveBackoff()
    rest.managers = managers
    rest.start(0.0)
    assert rest.remaining_ms(0.0) == left_ms
