"""The exit status of `vedette status`: what probes go by."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from vedette_services.run import overview

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


def test_where_nobody_answers_the_runs_of_this_folder_are_named(
    vedette: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`vedette run` listens at ports that are free, so that nobody is at the usual one."""
    for name in ("a run", "ended"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
    monkeypatch.setattr(overview, "is_running", lambda run: run.root.name == "a run")
    status, text = vedette("status", "--learner", "127.0.0.1:9", "--timeout", 0.1)
    assert status == 1
    assert text.endswith("; running below this folder: `vedette status 'runs/a run'`\n")
    monkeypatch.setattr(overview, "is_running", lambda run: False)
    _, text = vedette("status", "--learner", "127.0.0.1:9", "--timeout", 0.1)
    assert text.endswith("; `vedette doctor --learner 127.0.0.1:9` says why\n")
