"""Fixtures of the tests of clients in other languages."""

from __future__ import annotations

import pytest
from c_programs import Built, make_builder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Builds programs with the C client and sanitizers."""
    return make_builder(tmp_path_factory.mktemp("c"))
