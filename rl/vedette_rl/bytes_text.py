"""Sizes in bytes as text for people."""


def bytes_text(count: float) -> str:
    """Three digits and a unit of 1000s: ``bytes_text(10_240_000_000) == "10.2 GB"``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"
