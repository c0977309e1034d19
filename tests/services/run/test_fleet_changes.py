"""What is told of a fleet, from one look at the board to the next."""

from pathlib import Path

import pytest

from vedette_services.run.events import FleetChanges, FleetSizeCheck, RunEventLog, read_events
from vedette_services.status.records import GatewayStatus, TrainerStatus
from vedette_services.status.status import ActorStatus, ManagerStatus, Samples


def manager(
    name: str = "alpha",
    state: str = "running",
    *,
    incarnation: int = 1,
    restarts: int = 0,
    error: str = "",
    seen_s: float = 0.1,
) -> ManagerStatus:
    return ManagerStatus(
        id=name,
        incarnation=incarnation,
        host="gpu-1",
        state=state,
        actors=(
            ActorStatus(0, alive=True, restarts=restarts, error=error),
            ActorStatus(1, alive=True, error=error),
        ),
        last_seen_s=seen_s,
    )


def told(*looks: list[ManagerStatus]) -> list[tuple[str, str]]:
    watch = FleetChanges()
    return [(kind, f"{who} {text}") for look in looks for kind, who, text in watch.compare(look)]


def test_a_manager_comes_and_leaves() -> None:
    assert told([manager()], [manager()], [manager(state="draining")], [manager(state="gone")]) == [
        ("joined", "alpha on gpu-1, 2 actors"),
        ("left", "alpha normally"),
    ]


def test_a_manager_that_falls_silent_may_come_back() -> None:
    silent = manager(state="gone", seen_s=10.3)
    assert told([manager()], [silent], [silent], [manager()]) == [
        ("joined", "alpha on gpu-1, 2 actors"),
        ("silent", "alpha for 10 s: it counts as gone"),
        ("returned", "alpha after a silence"),
    ]


def test_a_manager_that_was_killed_and_started_again_joins_again() -> None:
    assert [kind for kind, _ in told([manager()], [manager(incarnation=2)])] == ["joined", "joined"]


def test_a_restart_of_an_actor_is_told_with_its_error() -> None:
    died = manager(restarts=2, error="ValueError: no")
    assert told([manager(restarts=1)], [died], [died])[1:] == [
        ("actor", "alpha/0 restart 2: ValueError: no")
    ]


def test_a_gateway_that_was_restarted_has_not_heard_of_anybody_yet() -> None:
    assert [kind for kind, _ in told([manager()], [], [manager()])] == ["joined"]


def test_what_happens_is_kept_over_starts(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for epoch in (1, 2):
        event_log = RunEventLog(path, clock=lambda: 5.0)
        event_log.log("started", "learner", "on gpu-1")
        event_log.log_epoch(epoch, 40)
        event_log.log_changes(
            TrainerStatus(opt_steps=50), GatewayStatus(Samples(), (manager(),), env_steps=7)
        )
        event_log.log("died", "evaluator", "signal 9")
        event_log.log("ended", "learner", "interrupted")
    events, _ = read_events(path)
    kinds = ["started", "epoch", "joined", "died", "ended"]
    assert [event.kind for event in events] == kinds * 2
    assert (events[1].opt_steps, events[2].opt_steps, events[2].env_steps) == (40, 50, 7)
    assert [event.epoch for event in events[4:7]] == [1, 0, 2]
    assert events[3].text == "signal 9"


def test_the_events_of_a_resumed_start_carry_the_steps_that_it_goes_on_from(tmp_path: Path) -> None:
    event_log = RunEventLog(tmp_path / "events.jsonl")
    event_log.log_start("on gpu-1", 40, 3312)
    event_log.log_epoch(2, 40)
    event_log.log_changes(TrainerStatus(opt_steps=40), GatewayStatus())  # it opens the replay
    event_log.log("died", "evaluator", "signal 9")
    event_log.log_changes(TrainerStatus(opt_steps=50), GatewayStatus(Samples(), env_steps=3400))
    event_log.log("ended", "learner", "interrupted")
    events, _ = read_events(tmp_path / "events.jsonl")
    assert [(event.kind, event.opt_steps, event.env_steps) for event in events] == [
        ("started", 40, 3312),
        ("epoch", 40, 3312),
        ("died", 40, 3312),
        ("ended", 50, 3400),
    ]


def test_a_crowd_is_counted_and_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    event_log = RunEventLog(path)
    crowd = GatewayStatus(managers=tuple(manager(f"m-{n}") for n in range(100)))
    event_log.log_changes(TrainerStatus(), crowd)
    event_log.log_changes(TrainerStatus(), crowd)
    events, _ = read_events(path)
    assert len(events) == 21
    assert (events[-1].kind, events[-1].who) == ("forgotten", "80")


def test_a_fleet_four_times_as_large_as_configured_is_warned_of_once() -> None:
    size = FleetSizeCheck(actors=2, envs_per_actor=8)
    hosts = [manager(f"host-{number}") for number in range(4)]  # of two actors each
    assert size.warning(hosts[:3], 0.0) == ""
    gone = manager("host-3", state="gone")
    assert size.warning([*hosts[:3], gone], 0.0) == ""
    assert size.warning(hosts, 1.0) == (
        "8 actors play 64 environments, and exploration, hand-over and intervals were chosen for 2 "
        "with 16: begin a run with actors.count=8, or set them yourself"
    )
    assert size.warning(hosts, 2.0) == ""


def test_a_fleet_of_a_quarter_is_warned_of_once_it_had_time_to_join() -> None:
    size = FleetSizeCheck(actors=8, envs_per_actor=1)
    assert size.warning([], 0.0) == size.warning([manager()], 100.0) == ""
    assert size.warning([manager()], 159.0) == ""
    assert size.warning([manager()], 160.0).startswith("2 actors play 2 environments, and ")


def test_the_log_of_a_run_has_the_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    event_log = RunEventLog(tmp_path / "events.jsonl", FleetSizeCheck(1, 1))
    fleet = (manager("a"), manager("b"))
    event_log.log_changes(TrainerStatus(), GatewayStatus(managers=fleet))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.records[0].getMessage().startswith("4 actors play 4 environments")


def test_that_managers_evaluate_no_model_is_an_event_for_each_reason(tmp_path: Path) -> None:
    log = RunEventLog(tmp_path / "events.jsonl")
    for why in ("", "no display", "no display", "", "no display", "no licence"):
        log.log_changes(TrainerStatus(), GatewayStatus(unevaluated=why))
    events, broken = read_events(tmp_path / "events.jsonl")
    assert [(event.kind, event.text) for event in events] == [
        ("unevaluated", "no display"),
        ("unevaluated", "no licence"),
    ]
    assert not broken


def test_samples_that_are_lost_are_said_at_most_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.jsonl"
    now = [0.0]
    event_log = RunEventLog(path, clock=lambda: now[0])
    begins = TrainerStatus()
    trains = TrainerStatus(phase="training")
    for now[0], learning, lost in (
        (0.0, begins, 40),
        (50.0, begins, 3_000),  # managers have not told yet what they hold
        (60.0, trains, 3_000),
        (64.0, trains, 40),
        (70.0, trains, 25_030),
        (76.0, trains, 25_040),
        (77.0, trains, 25_050),
        (130.0, trains, 25_055),
        (137.0, trains, 25_060),
        (200.0, trains, 40),
    ):
        event_log.log_changes(learning, GatewayStatus(Samples(lost=lost)))
    now[0] = 300.0
    event_log.log_changes(TrainerStatus(phase="done"), GatewayStatus(Samples(lost=30_000)))
    said = [text.partition(":")[0] for text in caplog.messages]
    assert said == [
        "25,000 more samples are lost, 25,040 in all",
        "20 more samples are lost, 25,060 in all",
    ]
    events, _ = read_events(path)
    assert [event.text for event in events] == caplog.messages
    assert {(event.kind, event.who) for event in events} == {("lost", "samples")}
