"""How long the gateway lets samples come together."""

import pytest

from vedette_services.learner.gateway.disk_lag import DiskLag
from vedette_services.learner.gateway.sockets import ReceiveBackoff


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


def test_a_disk_that_lags_for_more_than_a_second_is_told_of_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lag = DiskLag()
    for now in (0.0, 0.5):
        lag.note(now, lags=True)
    lag.note(0.9, lags=False)
    for now in (1.0, 1.9):
        lag.note(now, lags=True)
    assert not caplog.messages
    for now in (2.1, 2.2, 30.0):
        lag.note(now, lags=True)
    (said,) = caplog.messages
    assert said.startswith("samples wait for the disk")
    lag.note(63.0, lags=True)
    assert len(caplog.messages) == 2
