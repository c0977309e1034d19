"""The supervisor gives up on a process that an error ends again and again."""

from typing import Any

import pytest

from vedette_services.learner.supervisor import _Child

HOUR = 3600.0


def child(name: str) -> Any:
    restarts = [(k * HOUR, checkpoint) for k, checkpoint in enumerate([100, 200, 200])]
    return _Child(name, None, None, started=0.0, restarts=restarts)  # type: ignore[arg-type]  # unused


@pytest.mark.parametrize(
    ("name", "code", "saved", "counted"),
    [
        ("trainer", 1, 200, 2),  # an error, which comes again from the same checkpoint
        ("trainer", 1, 300, 0),  # it has got further
        ("trainer", -9, 200, 0),  # killed from outside
        ("gateway", 1, 200, 0),
    ],
)
def test_restarts_without_progress_count_however_long_ago(
    name: str, code: int, saved: int, counted: int
) -> None:
    assert len(child(name).recent_restarts(9 * HOUR, code, saved)) == counted


def test_restarts_of_the_last_minutes_count() -> None:
    assert len(child("gateway").recent_restarts(2 * HOUR + 60.0, -9, 300)) == 1
