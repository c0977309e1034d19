"""Numbers, times and sizes as a reader wants them."""

from __future__ import annotations

import math
import time

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def format_short(value: float) -> str:
    """A number in few characters: ``12.5k``, ``0.031``, ``2e-05``."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    for unit, letter in _UNITS:
        if size >= 0.99995 * unit and size >= 10_000:
            return f"{_plain(value / unit, 4)}{letter}"
    if size and size < 1e-3:
        return f"{value:.2g}"
    return _plain(value, 4)


def format_count(value: float | None) -> str:
    """A count with commas; a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:,.0f}"


def format_decimal(value: float | None, digits: int = 1) -> str:
    """A number with so many decimals; a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def format_duration(seconds: float | None) -> str:
    """``4 s``, ``3:05 min``, ``2:03:05 h``; a dash where there is none."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    count = round(max(0.0, seconds))
    if count < 60:
        return f"{count} s"
    if count < 3600:
        return f"{count // 60}:{count % 60:02} min"
    return f"{count // 3600}:{count // 60 % 60:02}:{count % 60:02} h"


def format_time(time_s: float | None) -> str:
    """A time of this machine's clock; a dash where there is none."""
    if time_s is None:
        return "–"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))
    except (ValueError, OverflowError, OSError):  # no time at all
        return "–"


def format_size(count: float | None) -> str:
    """Bytes."""
    if count is None:
        return "–"
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count:,.0f} bytes"


def _plain(value: float, digits: int) -> str:
    """So many significant digits, without an exponent and without zeros behind the point."""
    if not value:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    message = f"{value:.{decimals}f}"
    return message.rstrip("0").rstrip(".") if "." in message else message
