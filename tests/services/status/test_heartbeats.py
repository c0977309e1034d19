"""Who stands still, by the heartbeats: what takes long rightly is not taken for a fault."""

from pathlib import Path

import pytest

from vedette_services.config import RunConfig
from vedette_services.run.directory import RunDirectory
from vedette_services.status.assembly import assemble_known, counted
from vedette_services.status.heartbeats import (
    HeartbeatReader,
    Liveness,
    OwnPauses,
    Standstill,
    find_standstill,
    restart_threshold,
)
from vedette_services.status.records import (
    GatewayStatus,
    Heartbeat,
    StatusRecordWriter,
    TrainerStatus,
)
from vedette_services.status.status import Eval, Heartbeats, Rates, Status
from vedette_services.status.wait_reason import describe_wait

TABLE = {"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}}
CONFIG = RunConfig.model_validate(TABLE)
WORKS = Heartbeat(pid=7, began_s=100.0, beat_s=500.0, turn_s=500.0, moved_s=500.0)
STARTS = Heartbeat(began_s=500.0, beat_s=500.0)
AT = "my_agent.py:34 opt"


def away(seconds: float, *, still: float | None = None, **more: object) -> Heartbeat:
    """A process at 500 s whose loop came round `seconds` ago, and which is at one place since
    `still` seconds; its thread still writes."""
    moved_s = 500.0 - (seconds if still is None else still)
    values = {"turn_s": 500.0 - seconds, "moved_s": moved_s, "place": AT, **more}
    return Heartbeat(**{"pid": 7, "began_s": -9000.0, "beat_s": 500.0} | values)  # type: ignore[arg-type]  # a table of them


@pytest.mark.parametrize(
    ("beat", "now", "state", "said"),
    [
        (Heartbeat(), 900.0, "", None),  # nobody was started
        (WORKS, 509.0, "", None),
        (STARTS, 900.0, "", None),  # the phase says that it starts
        (STARTS, 520.0, "stopped", "20 s: its process is stopped (`kill -CONT 0` lets it go on)"),
        (away(34.0), 500.0, "", f"34 s: it is at {AT}"),
        (away(34.0), 500.0, "traced", "34 s: a debugger or tracer holds its process 7"),
        (away(34.0, debugged=True), 500.0, "", f"34 s: a debugger is loaded in it, at {AT}"),
        (away(34.0, compiles=True), 500.0, "", f"34 s: it compiles networks, at {AT}"),
        (
            away(34.0),
            500.0,
            "uninterruptible",
            f"34 s: its process waits for a disk or a driver, at {AT}",
        ),
        (WORKS, 534.0, "", "34 s: its process gives no sign"),
        (
            away(34.0, bounded=False),
            500.0,
            "",
            "34 s: the training loop has neither drawn a batch nor waited for one",
        ),
    ],
)
def test_a_standstill_is_said_with_what_the_process_does(
    beat: Heartbeat, now: float, state: str, said: str | None
) -> None:
    found = find_standstill("trainer", beat, now, state)
    if said is None:
        assert found is None
    else:
        assert str(found) == f"the trainer has stood still for {said}"
        assert not found.is_hung  # type: ignore[union-attr]  # it is there


@pytest.mark.parametrize(
    ("beat", "state", "longest_s"),
    [
        (away(0.0), "stopped", 30.0),
        (away(0.0), "", 300.0),  # in one call
        (away(0.0), "uninterruptible", 300.0),
        (away(0.0, compiles=True), "", 1800.0),
        (Heartbeat(began_s=500.0, beat_s=500.0, place=AT), "", 1800.0),  # it starts
        (away(0.0), "traced", None),
        (away(0.0, debugged=True), "", None),
        (away(0.0, debugged=True), "stopped", None),
        (away(0.0, bounded=False), "", None),
    ],
)
def test_a_process_is_hung_once_it_takes_longer_than_it_rightly_may(
    beat: Heartbeat, state: str, longest_s: float | None
) -> None:
    def is_hung(seconds: float) -> bool:
        found = find_standstill("trainer", beat, 500.0 + seconds, state)
        return found is not None and found.is_hung

    if longest_s is None:
        assert not is_hung(1e6)
    else:
        assert not is_hung(longest_s - 1.0)
        assert is_hung(longest_s)


def test_a_main_thread_that_moves_is_in_no_call_that_hangs() -> None:
    moving = find_standstill("trainer", away(1700.0, still=20.0), 500.0)
    assert moving is not None
    assert not moving.is_hung
    stuck = find_standstill("trainer", away(1700.0, still=301.0), 500.0)
    assert stuck is not None
    assert stuck.is_hung


def test_what_was_before_a_pause_of_the_one_who_asks_does_not_count() -> None:
    pauses = OwnPauses()
    for now in (0.0, 0.2, 4.0, 8.0):
        pauses.note(now)
    assert pauses.since == 0.0
    pauses.note(608.0)  # a suspended laptop, a frozen container
    assert pauses.since == 608.0
    beat = Heartbeat(pid=7, began_s=1.0, beat_s=8.0, turn_s=8.0, moved_s=8.0)
    assert find_standstill("trainer", beat, 609.0, "stopped", pauses.since) is None
    later = find_standstill("trainer", beat, 640.0, "stopped", pauses.since)
    assert later is not None
    assert later.is_hung


def test_each_restart_that_brings_nothing_doubles_the_time_to_the_next() -> None:
    assert [restart_threshold(restarts) for restarts in range(4)] == [2.0, 4.0, 8.0, 16.0]


def test_the_status_says_who_stands_still_and_shows_no_rate_of_before(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    beats = {"trainer": WORKS, "gateway": away(0.0), "supervisor": away(1.0)}
    for process, beat in beats.items():
        StatusRecordWriter(run.heartbeat_map(process), Heartbeat).write(beat)
    reader = HeartbeatReader(run.heartbeat_map, lambda pid: "stopped" if pid == 7 else "")
    learning = TrainerStatus(
        phase="waiting", waits="learner waits: 28 samples", rates=Rates(opt_steps_per_sec=46.0)
    )
    ingest = GatewayStatus(rates=Rates(samples_per_sec=90.0))

    def status_at(now: float, *, is_over: bool = False) -> Status:
        live = Liveness.read(reader, now, is_training_over=is_over)
        return counted(assemble_known("r", CONFIG, learning, ingest, Eval(), live))

    works = status_at(503.0)
    assert works.heartbeat == Heartbeats(trainer_s=3.0, gateway_s=3.0, supervisor_s=4.0)
    assert works.waits == "learner waits: 28 samples, 0 managers connected"
    assert works.rates.opt_steps_per_sec == 46.0
    still = status_at(512.0)
    assert still.waits.startswith("the trainer has stood still for 12 s: its process is stopped")
    assert "28 samples" not in still.waits
    assert (still.rates.opt_steps_per_sec, still.rates.samples_per_sec) == (0.0, 0.0)
    assert (still.heartbeat.hung, still.heartbeat.reason) == (0, "")
    hung = status_at(531.0)
    assert hung.heartbeat.hung == 3
    assert hung.heartbeat.processes == "trainer, gateway, supervisor"
    assert hung.heartbeat.reason.startswith("the trainer has stood still for 31 s")
    assert status_at(531.0, is_over=True).heartbeat.hung == 2


def test_a_trainer_that_stands_still_is_the_reason_and_not_what_it_waited_for() -> None:
    learning = TrainerStatus(phase="waiting", waits="learner waits: 28 samples")
    still = Standstill("trainer", 12.0, "it is at x.py:3 f", 0.1)
    said = describe_wait(learning, GatewayStatus(), None, (still,))
    assert said == "the trainer has stood still for 12 s: it is at x.py:3 f"
    other = Standstill("gateway", 12.0, "it is at x.py:3 f", 0.1)
    said = describe_wait(learning, GatewayStatus(), None, (other,))
    assert said.endswith("; learner waits: 28 samples, 0 managers connected")
