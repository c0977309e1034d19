"""When silence is too long."""

from __future__ import annotations

from vedette_services.actors.connection import Heartbeat


def test_three_seconds_of_silence_are_too_long_and_again_three_seconds_later() -> None:
    heartbeat = Heartbeat(lambda: 0.5, now=0.0)
    assert heartbeat.on_message(1.0)
    assert not heartbeat.on_message(2.0)
    assert heartbeat.poll_silence(4.9) is None
    assert heartbeat.poll_silence(5.0) == 0.25
    assert heartbeat.poll_silence(8.2) is None
    assert heartbeat.poll_silence(8.25) == 0.25
    assert heartbeat.silent
    assert heartbeat.on_message(9.0)
    assert heartbeat.poll_silence(11.9) is None


def test_a_learner_that_was_never_heard_is_called_again_too() -> None:
    heartbeat = Heartbeat(lambda: 0.0, now=0.0)
    assert heartbeat.poll_silence(3.0) == 0.0
    assert not heartbeat.ever_received
