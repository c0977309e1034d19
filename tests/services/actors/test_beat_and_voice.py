"""When silence is too long, and how often a thing is said."""

from __future__ import annotations

from vedette_services.actors.link import Beat
from vedette_services.actors.voice import Rate


def test_three_seconds_of_silence_are_too_long_and_again_three_seconds_later() -> None:
    beat = Beat(lambda: 0.5, now=0.0)
    assert beat.heard(1.0)
    assert not beat.heard(2.0)
    assert beat.overdue(4.9) is None
    assert beat.overdue(5.0) == 0.25
    assert beat.overdue(8.2) is None
    assert beat.overdue(8.25) == 0.25
    assert beat.silent
    assert beat.heard(9.0)
    assert beat.overdue(11.9) is None


def test_a_learner_that_was_never_heard_is_called_again_too() -> None:
    beat = Beat(lambda: 0.0, now=0.0)
    assert beat.overdue(3.0) == 0.0
    assert not beat.ever_heard


def test_what_is_new_is_said_and_what_repeats_is_said_rarely() -> None:
    voice = Rate(every_s=30)
    assert voice.should_say("credit", "paused", 0.0)
    assert not voice.should_say("credit", "paused", 29.0)
    assert voice.should_say("silence", "no word", 29.0)
    assert voice.should_say("credit", "paused", 30.0)
    assert not voice.should_say("credit", "other", 31.0)
    assert voice.should_say("credit", "other", 33.0)
    voice.over("credit")
    assert voice.should_say("credit", "paused", 33.1)
