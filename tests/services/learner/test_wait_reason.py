"""Who waits for what, as the status says it."""

from vedette_services.run.status import Manager
from vedette_services.run.status_records import GatewayStatus, TrainerStatus, describe_wait

WAITING = TrainerStatus(phase="waiting", waits="learner waits: 0 of 64 warm-up samples")
MANAGERS = (Manager(state="running"), Manager(state="gone"))


def test_a_learner_that_waits_says_for_what_and_who_is_there() -> None:
    said = describe_wait(WAITING, GatewayStatus(managers=MANAGERS))
    assert said == "learner waits: 0 of 64 warm-up samples, 1 manager connected"


def test_a_learner_that_waits_says_why_what_comes_is_no_use() -> None:
    ingest = GatewayStatus(
        managers=MANAGERS, rejecting="column 'reward' has values that are not finite"
    )
    assert describe_wait(WAITING, ingest) == (
        "learner waits: 0 of 64 warm-up samples, 1 manager connected; "
        "batches are rejected: column 'reward' has values that are not finite"
    )
    assert describe_wait(TrainerStatus(phase="training"), ingest) == ""
