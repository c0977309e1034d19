"""What the system does for a process that was killed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def descriptors_of_killed_processes(tmp_path: Path) -> Iterator[None]:
    """Close what an outbox that a test has left without an end has open in the test's folder."""
    yield
    with contextlib.suppress(FileNotFoundError):  # a system without /proc has no such test
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the list's own is gone
                if descriptor.readlink().is_relative_to(tmp_path):
                    os.close(int(descriptor.name))
