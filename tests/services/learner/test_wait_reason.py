"""Who waits for what, as the status says it."""

from vedette_services.run.status import describe_wait
from vedette_services.run.status_records import GatewayStatus, TrainerStatus

WAITING = TrainerStatus(phase="waiting", waits="learner waits: 0 of 64 warm-up samples")
MANAGERS = [{"state": "running"}, {"state": "gone"}]


def test_a_learner_that_waits_says_for_what_and_who_is_there() -> None:
    said = describe_wait(WAITING, GatewayStatus(managers=MANAGERS), 64)
    assert said == "learner waits: 0 of 64 warm-up samples, 1 manager connected"


def test_a_learner_that_waits_says_why_what_comes_is_no_use() -> None:
    ingest = GatewayStatus(
        managers=MANAGERS, rejecting="column 'reward' has values that are not finite"
    )
    assert describe_wait(WAITING, ingest, 64) == (
        "learner waits: 0 of 64 warm-up samples, 1 manager connected; "
        "batches are rejected: column 'reward' has values that are not finite"
    )
    assert describe_wait(TrainerStatus(phase="training"), ingest, 64) == ""
