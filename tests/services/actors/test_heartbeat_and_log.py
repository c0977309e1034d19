"""When silence is too long, and how often a thing is said."""

from __future__ import annotations

from vedette_services.actors.connection import Heartbeat
from vedette_services.actors.manager_log import RepeatFilter


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


def test_what_is_new_is_said_and_what_repeats_is_said_rarely() -> None:
    voice = RepeatFilter(every_s=30)
    assert voice.should_log("credit", "paused", 0.0)
    assert not voice.should_log("credit", "paused", 29.0)
    assert voice.should_log("silence", "no word", 29.0)
    assert voice.should_log("credit", "paused", 30.0)
    assert not voice.should_log("credit", "other", 31.0)
    assert voice.should_log("credit", "other", 33.0)
    voice.reset("credit")
    assert voice.should_log("credit", "paused", 33.1)
