from vedette_rl.number_format import format_duration, format_time


def test_times_are_in_units_that_suit_them() -> None:
    assert [format_duration(s) for s in (None, 4.2, 185.0, 7385.0)] == [
        "–",
        "4 s",
        "3:05 min",
        "2:03:05 h",
    ]
    assert [format_time(t) for t in (None, 1e300)] == ["–", "–"]
