"""The exit status of `vedette status`: what probes go by."""

import json
from collections.abc import Callable
from typing import Any, Self

import pytest

Run = Callable[..., tuple[int, str]]


class Answering:
    """Stands for a learner that answers with these hung processes."""

    end = place = ""

    def __init__(self, *hung: str) -> None:
        reason = "; ".join(f"the {name} has stood still for 400 s: it is stuck" for name in hung)
        named = ", ".join(hung)
        self._status = {"heartbeat": {"hung": len(hung), "processes": named, "reason": reason}}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask_json(self, timeout_s: float) -> bytes:
        return json.dumps(self._status).encode()


@pytest.mark.parametrize(
    ("hung", "ready", "alive"),
    [
        ((), 0, 0),
        (("trainer",), 1, 0),  # the supervisor starts it again
        (("trainer", "gateway"), 1, 0),
        (("supervisor",), 1, 1),
        (("trainer", "supervisor"), 1, 1),
    ],
)
def test_only_a_hung_supervisor_needs_a_new_start_of_the_learner(
    vedette: Run, monkeypatch: pytest.MonkeyPatch, hung: tuple[str, ...], ready: int, alive: int
) -> None:
    def asker(*_: Any) -> Answering:
        return Answering(*hung)

    monkeypatch.setattr("vedette.cli.status._asker", asker)
    for options, expected in (((), ready), (("--alive",), alive)):
        status, text = vedette("status", *options)
        assert status == expected
        assert all(f"the {name} has stood still" in text for name in hung) or not expected


def test_a_learner_that_does_not_answer_is_not_alive(vedette: Run) -> None:
    assert vedette("status", "--alive", "--learner", "127.0.0.1:9", "--timeout", 0.1)[0] == 1
