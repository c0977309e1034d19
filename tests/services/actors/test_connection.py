"""When silence is too long."""

from __future__ import annotations

from vedette_services.actors.connection import Connection


def test_three_seconds_of_silence_are_too_long_and_again_three_seconds_later() -> None:
    connection = Connection(lambda: 0.5, now=0.0)
    assert connection.on_message(1.0)
    assert not connection.on_message(2.0)
    assert connection.poll_remake(4.9, holds=False) is None
    assert connection.poll_remake(5.0, holds=False) == 0.25
    assert connection.poll_remake(8.2, holds=False) is None
    assert connection.poll_remake(8.25, holds=False) == 0.25
    assert connection.silent
    assert connection.on_message(9.0)
    assert connection.poll_remake(11.9, holds=False) is None


def test_a_learner_that_was_never_heard_is_called_again_too() -> None:
    connection = Connection(lambda: 0.0, now=0.0)
    assert connection.poll_remake(3.0, holds=False) == 0.0
    assert not connection.ever_received
