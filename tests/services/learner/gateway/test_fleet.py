"""The managers as the learner sees them, without a network."""

from typing import Any

from vedette_protocol.messages import ActorReport, Report
from vedette_services.learner.gateway.fleet import Fleet
from vedette_services.status.records import GONE_AFTER_S


def report(produced: int = 0, incarnation: int = 1, state: Any = "running") -> Report:
    return Report(
        manager="m1",
        incarnation=incarnation,
        host="host",
        state=state,
        run_id="r1",
        produced=produced,
        dropped=0,
        window_batches=0,
        window_rows=0,
        window_bytes=0,
        sequenced=0,
        actors=(ActorReport(0, True, 0, produced, 0, 5),),
    )


def test_a_manager_is_shown_with_what_it_brings_a_second_and_not_with_what_it_claims() -> None:
    fleet = Fleet()
    for second in range(4):
        fleet.on_report(report(produced=10**9 * second), float(second), 100 * second)
    assert fleet.status(3.0)[0]["samples_per_sec"] == 100.0


def test_another_incarnation_begins_its_rate_anew() -> None:
    fleet = Fleet()
    fleet.on_report(report(), 0.0, 1000)
    fleet.on_report(report(incarnation=2), 1.0, 0)
    assert fleet.status(1.0)[0]["samples_per_sec"] == 0.0


def test_who_said_good_bye_left_and_who_fell_silent_did_not() -> None:
    fleet = Fleet()
    fleet.on_report(report(), 0.0)
    assert fleet.newly_gone(GONE_AFTER_S + 1.0) == ["m1"]
    silent = fleet.status(GONE_AFTER_S + 1.0)[0]
    assert (silent["state"], silent["left"]) == ("gone", False)
    fleet.on_report(report(state="gone"), 20.0)
    left = fleet.status(20.0)[0]
    assert (left["state"], left["left"], left["samples_per_sec"]) == ("gone", True, 0.0)
