"""Learners of the tests that no test leaves open, whether it fails or not."""

from collections.abc import Iterator

import pytest
from fake_learner import FakeLearner


@pytest.fixture(autouse=True)
def no_learner_is_left_open() -> Iterator[None]:
    yield
    for learner in list(FakeLearner.open):
        learner.close()
