"""Fixtures of the tests of clients in other languages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from c_programs import Built, make_builder

sys.path.append(str(Path(__file__).parents[1] / "integration"))  # real daemons, and their proofs


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Builds programs with the C client and sanitizers."""
    return make_builder(tmp_path_factory.mktemp("c"))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[object]:
    """Daemons that no test leaves behind."""
    from daemons import Daemons

    with Daemons(tmp_path) as house:
        yield house
