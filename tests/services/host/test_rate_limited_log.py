"""Lines that repeat are logged at a bounded rate, and counted."""

from __future__ import annotations

from vedette_services.host.rate_limited_log import RateLimitedLog


def test_a_new_line_is_logged_and_one_that_repeats_is_logged_rarely() -> None:
    repeats = RateLimitedLog(30, changed_s=3)
    assert repeats.should_log("credit", "paused", 0.0)
    assert not repeats.should_log("credit", "paused", 29.0)
    assert repeats.should_log("silence", "no word", 29.0)
    assert repeats.should_log("credit", "paused", 30.0)
    assert not repeats.should_log("credit", "other", 31.0)
    assert repeats.should_log("credit", "other", 33.0)
    repeats.reset("credit")
    assert repeats.should_log("credit", "paused", 33.1)


def test_the_first_added_line_is_due_at_once_and_the_others_are_counted() -> None:
    rejections = RateLimitedLog(10)
    assert rejections.due_lines(0.0) == []
    rejections.add("rejected", "batch 1")
    assert rejections.due_lines(0.0) == ["rejected: batch 1"]
    for batch in range(2, 2002):
        rejections.add("rejected", f"batch {batch}")
    rejections.add("garbage", "no header")
    assert rejections.due_lines(9.9) == ["garbage: no header"]
    assert rejections.due_lines(10.0) == ["rejected: batch 2001 (and 1,999 more)"]
    assert rejections.due_lines(100.0) == []


def test_another_text_is_no_sooner_due_than_the_same() -> None:
    rejections = RateLimitedLog(10)
    rejections.add("rejected", "batch 1")
    assert rejections.due_lines(0.0)
    rejections.add("rejected", "batch 2")
    assert rejections.due_lines(9.0) == []


def test_a_failure_is_logged_once_until_it_is_over() -> None:
    failures = RateLimitedLog()
    assert failures.first("summary")
    assert not failures.first("summary")
    assert failures.first("events")
    failures.reset("summary")
    assert failures.first("summary")
