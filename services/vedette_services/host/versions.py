"""The version of Vedette."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def vedette_version() -> str:
    """The installed distribution's version; "" where it is not installed."""
    try:
        return version("vedette")
    except PackageNotFoundError:
        return ""
