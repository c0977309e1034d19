"""Who waits for what, as the status says it."""

from dataclasses import replace

import pytest

from vedette_services.status.records import GatewayStatus, TrainerStatus
from vedette_services.status.status import (
    ActorStatus,
    Checkpoint,
    Eval,
    ManagerStatus,
    Rates,
    ReplayStatus,
    Samples,
    Time,
)
from vedette_services.status.wait_reason import describe_wait

WAITING = TrainerStatus(phase="waiting", waits="learner waits: 0 of 64 warm-up samples")
MANAGERS = (ManagerStatus(state="running"), ManagerStatus(state="gone"))


def test_a_learner_that_waits_says_for_what_and_who_is_there() -> None:
    said = describe_wait(WAITING, GatewayStatus(managers=MANAGERS))
    assert said == "learner waits: 0 of 64 warm-up samples, 1 manager connected"


def test_a_learner_that_waits_says_why_what_comes_is_no_use() -> None:
    ingest = GatewayStatus(
        managers=MANAGERS,
        rejecting=True,
        rejected_reason="column 'reward' has values that are not finite",
    )
    assert describe_wait(WAITING, ingest) == (
        "learner waits: 0 of 64 warm-up samples, 1 manager connected; "
        "batches are rejected: column 'reward' has values that are not finite"
    )
    assert describe_wait(TrainerStatus(phase="training"), ingest) == ""


def test_a_learner_that_waits_says_why_managers_gave_up_where_nobody_plays() -> None:
    gave_up = tuple(
        ManagerStatus(f"m{n}", state="gone", left=True, actors=(ActorStatus(error="no x here"),))
        for n in range(2)
    )
    said = describe_wait(WAITING, GatewayStatus(managers=gave_up))
    assert said.endswith("0 managers connected; manager m1 (and 1 more) gave up: no x here")
    plays = ManagerStatus("m2", state="running")
    said = describe_wait(WAITING, GatewayStatus(managers=(*gave_up, plays)))
    assert said.endswith("1 manager connected")


def test_a_learner_that_trains_says_that_no_checkpoint_can_be_written() -> None:
    failing = Checkpoint(opt_steps=1200, failures=3, failing="No space left on device")
    learning = TrainerStatus(phase="training", checkpoint=failing)
    assert describe_wait(learning, GatewayStatus()) == (
        "no checkpoint can be written (No space left on device), and the last is of optimization "
        "step 1,200"
    )


def test_a_disk_that_is_too_slow_for_the_replay_is_told_once_that_lasts() -> None:
    training = TrainerStatus(phase="training")
    assert describe_wait(training, GatewayStatus(replay=ReplayStatus(disk_lag_s=0.4))) == ""
    said = describe_wait(training, GatewayStatus(replay=ReplayStatus(disk_lag_s=12.0)))
    assert said.startswith("samples wait for the disk, which is slow to sync the replay: raise")


def test_the_last_evaluation_is_waited_for_and_nobody_waits_after_the_end() -> None:
    done = TrainerStatus(phase="done", opt_steps=4000, evaluates=True)
    ingest = GatewayStatus(limiter_reason="actors wait for the learner")
    said = "the last evaluation: version 4,000 is played"
    assert describe_wait(done, ingest, Eval(version=3000)) == said
    assert describe_wait(done, ingest, Eval(version=4000)) == ""
    assert describe_wait(replace(done, evaluates=False), ingest, Eval(version=3000)) == ""


def shares(waiting: float | None, phase: str = "training") -> TrainerStatus:
    """A trainer that has waited for a share of the last 10 s."""
    rest = None if waiting is None else 1.0 - waiting
    times = Time(optimizing_share=rest, sampling_share=0.0, waiting_share=waiting)
    return TrainerStatus(phase=phase, waits="learner waits: 2 samples", time=times)


@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        (0.73, "the actors are the limit: the learner waited for samples 73 % of the last 10 s"),
        (0.3, "learner and actors take turns, at replay.samples_per_insert = 32"),
        (0.02, "the learner is the limit: the learner waited for samples 2 % of the last 10 s"),
    ],
)
def test_the_diagnosis_comes_from_the_shares_of_the_last_seconds(waiting: float, said: str) -> None:
    """A limiter lets one side wait for a moment all the time: that is no diagnosis."""
    moment = GatewayStatus(limiter_reason="actors wait for the learner: ...", managers=MANAGERS)
    for phase in ("training", "waiting"):
        found = describe_wait(
            shares(waiting, phase), moment, ratio="replay.samples_per_insert = 32"
        )
        assert found.startswith(said)
    assert ("more actors help" in found) == (waiting > 0.5)
    assert ("more actors do not" in found) == (waiting < 0.1)


def test_managers_that_hold_many_samples_are_not_too_few() -> None:
    def said(held: int, per_s: float) -> str:
        rates = Rates(samples_per_sec=per_s)
        ingest = GatewayStatus(managers=MANAGERS, samples=Samples(in_flight=held), rates=rates)
        return describe_wait(shares(0.93), ingest, ratio="replay.passes = 4")

    assert said(1_322_528, 682.0) == (
        "the way from the actors is the limit: the learner waited for samples 93 % of the last "
        "10 s, and managers hold 1,322,528; a faster network or gateway helps, more actors do not"
    )
    assert said(3_000, 682.0).startswith("the actors are the limit")  # always on the way
    assert said(32, 2.0).startswith("the actors are the limit")  # two batches of a slow simulator


def test_what_is_rejected_or_comes_from_nobody_is_no_speed_that_has_a_limit() -> None:
    reason = "column 'reward' has values that are not finite"
    rejects = GatewayStatus(managers=MANAGERS, rejecting=True, rejected_reason=reason)
    waits = describe_wait(shares(0.93, "waiting"), rejects, ratio="replay.samples_per_insert = 32")
    assert waits == f"learner waits: 2 samples, 1 manager connected; batches are rejected: {reason}"
    gone = GatewayStatus(managers=MANAGERS[1:])
    waits = describe_wait(shares(0.93, "waiting"), gone, ratio="replay.samples_per_insert = 32")
    assert waits == "learner waits: 2 samples, 0 managers connected"


def test_without_a_replay_ratio_and_before_shares_are_known_the_moment_is_said() -> None:
    moment = GatewayStatus(limiter_reason="actors wait for the learner: ...", managers=MANAGERS)
    assert describe_wait(shares(0.02), moment) == moment.limiter_reason
    assert (
        describe_wait(shares(None), moment, ratio="replay.samples_per_insert = 32")
        == moment.limiter_reason
    )


def test_a_learner_that_can_draw_nothing_from_its_samples_says_so_and_not_who_is_slow() -> None:
    flows = GatewayStatus(managers=MANAGERS)
    lacking = replace(shares(0.93, "waiting"), needs_samples=True, waits="learner waits: none")
    said = describe_wait(lacking, flows, ratio="replay.samples_per_insert = 32")
    assert said == "learner waits: none, 1 manager connected"


def test_a_learner_that_has_done_nothing_else_says_what_it_waits_for() -> None:
    said = describe_wait(
        shares(1.0, "waiting"), GatewayStatus(), ratio="replay.samples_per_insert = 32"
    )
    assert said == "learner waits: 2 samples, 0 managers connected"


@pytest.mark.parametrize(("others", "who"), [(0, "robot-7"), (2, "robot-7 and 2 more managers")])
def test_samples_that_no_outbox_could_write_are_counted_and_named(others: int, who: str) -> None:
    managers = [ManagerStatus(id="robot-7", state="running", memory_rows=1200)]
    managers += [ManagerStatus(id=f"r{n}", state="running", memory_rows=100) for n in range(others)]
    managers += [ManagerStatus(id="left", state="gone", left=True, memory_rows=5000)]
    said = describe_wait(
        TrainerStatus(phase="training"), GatewayStatus(managers=(*managers, MANAGERS[0]))
    )
    rows = 1200 + 100 * others
    assert said.startswith(f"{rows:,} samples of {who} are in memory alone")
    assert "no better than without an outbox" in said
