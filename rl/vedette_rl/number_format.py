"""Formats numbers, rates and times for people."""

from __future__ import annotations

import math
import time

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_NONE = "–"


def format_number(number: float | None, digits: int = 0) -> str:
    """A number with commas; a hyphen where there is none."""
    return "-" if number is None else f"{number:,.{digits}f}"


def format_short(number: float | None, digits: int = 0) -> str:
    """A number in seven characters at most: ``123k``, ``1.25M``; one below 100,000 whole."""
    if number is None or not math.isfinite(number) or abs(number) < 100_000:
        return format_number(number, digits)
    size, unit = next((x, u) for x, u in reversed(_UNITS) if abs(number) < 999.5 * x or u == "G")
    return (
        f"{number / size:.0f}{unit}" if abs(number) >= 100 * size else f"{number / size:.3g}{unit}"
    )


def format_count(number: float | None) -> str:
    """A count with commas; a dash where there is none, or it is not finite."""
    return format_decimal(number, 0)


def format_decimal(number: float | None, digits: int = 1) -> str:
    """A number with so many decimals; a dash where there is none, or it is not finite."""
    return _NONE if number is None or not math.isfinite(number) else format_number(number, digits)


def format_rate(per_s: float | None, *, short: bool = False) -> str:
    """A rate, with a digit behind the point where it is small."""
    number = format_short if short else format_number
    return f"{number(per_s, 0 if per_s is None or abs(per_s) >= 10 else 1)}/s"


def format_spread(spread: dict[str, float], form: str) -> str:
    """A median with the least and the greatest value, each in the form of a format string."""
    median, least, most = (form.format(spread[key]) for key in ("median", "min", "max"))
    return f"{median} ({least.strip()} to {most.strip()})"


def format_clock(duration_s: float) -> str:
    """Seconds as h:mm:ss, rounded as `format_duration` does."""
    if not math.isfinite(duration_s):
        return "-"
    whole = round(duration_s)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def format_duration(duration_s: float | None) -> str:
    """``4 s``, ``3:05 min``, ``2:03:05 h``; a dash where there is none."""
    if duration_s is None or not math.isfinite(duration_s):
        return _NONE
    whole = round(max(0.0, duration_s))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{format_clock(whole)} h"


def format_time(time_s: float | None) -> str:
    """A time of this machine's clock; a dash where there is none."""
    try:
        return (
            _NONE if time_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))
        )
    except (ValueError, OverflowError, OSError):  # no time at all
        return _NONE


def format_bytes(count: float) -> str:
    """Three digits and a unit of 1000s: ``format_bytes(10_240_000_000) == "10.2 GB"``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"
