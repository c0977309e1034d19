"""Learners of the tests: where they listen, and that no test leaves one open."""

from collections.abc import Iterator

import pytest
from fake_learner import FakeLearner, free_address

from vedette_services.net.addresses import Address


@pytest.fixture(autouse=True)
def no_learner_is_left_open() -> Iterator[None]:
    yield
    for learner in list(FakeLearner.open):
        learner.close()


@pytest.fixture
def address() -> Address:
    """Of three free ports on loopback."""
    return free_address()
