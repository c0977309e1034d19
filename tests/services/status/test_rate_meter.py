"""Sliding windows over growing values."""

from vedette_services.status.rate_meter import RateMeter, RecentValues


def test_a_window_begins_with_the_value_of_its_seconds_ago() -> None:
    seen = RecentValues[int](10.0)
    assert seen.add(5, 100.0) == (0.0, 5)
    assert seen.add(6, 104.0) == (4.0, 5)
    assert seen.add(7, 109.5) == (9.5, 5)
    assert seen.add(8, 114.0) == (10.0, 6)
    assert seen.add(9, 200.0) == (86.0, 8)  # nothing was seen since


def test_values_within_the_least_distance_are_not_kept() -> None:
    window = RecentValues[str](2.0, every_s=1.0)
    window.add("first", 0.0)
    for now in (0.3, 0.6, 0.9):
        assert window.add("soon", now) == (now, "first")
    window.add("second", 1.0)
    assert window.add("third", 2.1) == (2.1, "first")
    assert window.add("fourth", 3.1) == (2.1, "second")


def test_a_rate_is_the_growth_over_the_window() -> None:
    meter = RateMeter(5.0)
    assert meter.update(100, 0.0) == 0.0
    assert meter.update(110, 2.0) == 5.0
    assert meter.update(200, 7.0) == 18.0
