"""Daemons that no test leaves behind; their logs are shown where one fails."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from daemons import Daemons


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    house = getattr(item, "funcargs", {}).get("daemons")
    if report.failed and isinstance(house, Daemons):
        report.sections.append(("daemons", house.post_mortem()))
    return report


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    with Daemons(tmp_path) as house:
        yield house
