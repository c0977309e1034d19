import pytest

from vedette.reports.markup import Markup, element, to_markup
from vedette_services.run.number_format import format_axis, format_duration, format_time


def test_every_text_is_escaped_in_elements_and_in_attributes() -> None:
    made = element("td", "<script>alert(1)</script>", title='" onload="x')
    assert made == ('<td title="&quot; onload=&quot;x">&lt;script&gt;alert(1)&lt;/script&gt;</td>')


def test_markup_is_not_escaped_again() -> None:
    assert element("p", element("b", "&"), None) == "<p><b>&amp;</b></p>"
    assert element("img", src="x", alt=None) == '<img src="x">'


@pytest.mark.parametrize("letter", ["\0", "\x1b", "\x85", "\u202e", "\u2066", "\ud800"])
def test_characters_that_hide_or_reverse_others_are_replaced(letter: str) -> None:
    assert to_markup(f"a{letter}b") == Markup("a\ufffdb")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0"),
        (12.0, "12"),
        (1234.5, "1234"),
        (9999.0, "9999"),
        (12_500.0, "12.5k"),
        (999_999.0, "1M"),
        (2_000_000.0, "2M"),
        (-31_000.0, "-31k"),
        (0.0312, "0.0312"),
        (0.00002, "2e-05"),
        (float("inf"), "inf"),
    ],
)
def test_a_number_is_short(value: float, said: str) -> None:
    assert format_axis(value) == said


def test_times_are_in_units_that_suit_them() -> None:
    assert [format_duration(s) for s in (None, 4.2, 185.0, 7385.0)] == [
        "–",
        "4 s",
        "3:05 min",
        "2:03:05 h",
    ]
    assert [format_time(t) for t in (None, 1e300)] == ["–", "–"]
