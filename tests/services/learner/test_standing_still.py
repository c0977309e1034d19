"""The supervisor and processes that stand still: real ones, with shorter times than those of a
run."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from child_process import child_process  # of tests/support
from configurations import configured
from starts import spec_of

from vedette.local.daemons import free_port
from vedette_services.errors import ChildHungError
from vedette_services.learner import supervisor
from vedette_services.learner.supervisor import Supervisor
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import read_events
from vedette_services.run.outcome import describe_wait
from vedette_services.status import heartbeats
from vedette_services.status.records import Heartbeat, StatusRecordWriter, TrainerStatus
from vedette_services.status.status import Status

TABLE = {
    "preset": "none",
    "env": {"id": "CartPole-v1"},
    "agent": {"name": "dqn", "hidden_sizes": [16]},
    "replay": {"capacity": 1000},
    "learner": {"eval_interval": 0},
}
WAIT_S = 60.0  # of a wait that ends with its event


@pytest.fixture
def watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """A supervisor whose gateway works; its trainer is a status record."""
    monkeypatch.setattr(heartbeats, "SAID_S", 2.0)
    monkeypatch.setattr(heartbeats, "STOPPED_S", 2.5)
    run = RunDirectory(tmp_path / "run")
    run.make()
    address = Address("127.0.0.1", free_port())
    spec = spec_of(run, run.ensure_id(), configured(table=TABLE), address)
    spec.write()
    found = Supervisor(spec, None, on_loaded=lambda: None)
    StatusRecordWriter(run.learning_map, TrainerStatus).write(
        TrainerStatus(epoch=1, opt_steps=40, phase="waiting", waits="learner waits: 28 samples")
    )
    found._start("gateway")
    try:
        watch_until(found, lambda: found._records.ingest.read().samples is not None)
        watch_until(found, lambda: found._records.heartbeats.read("gateway").turn_s > 0.0)
        yield found
    finally:
        found._end_children()


def watch_until(watched: Supervisor, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        watched._watch(())  # type: ignore[arg-type]  # nobody stops it
        time.sleep(0.05)


def status(watched: Supervisor) -> Status:
    return watched._records.read()


def deaths(watched: Supervisor) -> list[str]:
    events, _ = read_events(watched._spec.run.events_file)
    return [event.text for event in events if event.kind == "died"]


def test_a_gateway_that_is_stopped_is_said_and_started_again(
    watching: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = watching._children["gateway"].process
    assert status(watching).heartbeat.hung == 0
    os.kill(stopped.pid, signal.SIGSTOP)
    said = "the gateway has stood still for "
    watch_until(watching, lambda: status(watching).waits.startswith(said))
    assert f"(`kill -CONT {stopped.pid}` lets it go on)" in status(watching).waits
    watch_until(watching, lambda: status(watching).heartbeat.hung == 1)
    watch_until(watching, lambda: stopped.poll() == -signal.SIGKILL)
    watch_until(watching, lambda: watching._records.heartbeats.read("gateway").pid != 0)
    new = watching._children["gateway"].process
    assert watching._records.heartbeats.read("gateway").pid == new.pid != stopped.pid
    watch_until(watching, lambda: watching._records.heartbeats.read("gateway").turn_s > 0.0)
    assert status(watching).heartbeat.hung == 0
    (text,) = deaths(watching)
    assert text.startswith(said)
    assert text.endswith("it is started again")
    levels = [record.levelno for record in caplog.records if said in record.message]
    assert levels == [logging.WARNING, logging.ERROR, logging.ERROR]


@pytest.mark.slow
def test_one_that_goes_on_is_left_alone(
    watching: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gateway = watching._children["gateway"].process
    os.kill(gateway.pid, signal.SIGSTOP)
    watch_until(watching, lambda: any("has stood still" in line for line in caplog.messages))
    os.kill(gateway.pid, signal.SIGCONT)
    said = "the gateway works again; it stood still for "
    watch_until(watching, lambda: any(line.startswith(said) for line in caplog.messages))
    assert "stood still" not in status(watching).waits
    assert watching._children["gateway"].process is gateway


@pytest.mark.slow
def test_a_machine_that_was_suspended_restarts_nobody(
    watching: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor stands still as well: its own clock has a gap."""
    monkeypatch.setattr(heartbeats, "PAUSE_S", 0.5)
    gateway = watching._children["gateway"].process
    os.kill(gateway.pid, signal.SIGSTOP)
    time.sleep(7.0)  # longer than it may stand still, and nobody watches
    watching._watch(())  # type: ignore[arg-type]  # nobody stops it
    os.kill(gateway.pid, signal.SIGCONT)
    before = watching._records.heartbeats.read("gateway").turn_s
    watch_until(
        watching, lambda: watching._records.heartbeats.read("gateway").turn_s > before + 1.0
    )
    assert watching._children["gateway"].process is gateway
    assert deaths(watching) == []


@pytest.mark.slow
def test_after_restarts_that_bring_nothing_the_learner_gives_up(
    watching: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    watching._children["gateway"].standstills = [(now, 0)] * supervisor._STANDSTILLS
    monkeypatch.setattr(heartbeats, "STOPPED_S", 0.2)  # the fourth time, after 16 times as long
    gateway = watching._children["gateway"].process
    os.kill(gateway.pid, signal.SIGSTOP)
    with pytest.raises(ChildHungError) as raised:
        watch_until(watching, lambda: False)
    assert str(raised.value).startswith("the gateway has stood still for ")
    assert "; 3 restarts of the gateway brought nothing: " in str(raised.value)


@pytest.mark.slow
def test_a_process_that_cannot_be_killed_is_started_again_once_it_has_ended(
    watching: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that waits for a disk in the kernel: here, one that nobody kills yet."""
    monkeypatch.setattr(supervisor, "_REPLACE_S", 0.1)
    child = watching._children["gateway"]
    kill = child.process.kill
    monkeypatch.setattr(child.process, "kill", lambda: None)
    watching._replace(child)
    assert "does not end: it waits for a disk or a driver" in caplog.messages[-1]
    for _ in range(3):
        watching._watch(())  # type: ignore[arg-type]  # nobody stops it
    assert watching._children["gateway"] is child
    kill()
    watch_until(watching, lambda: watching._children["gateway"] is not child)
    assert deaths(watching) == []


def test_a_trainer_that_gets_no_further_is_counted_however_long_ago() -> None:
    child = supervisor._Child("trainer", None, None, 0.0)  # type: ignore[arg-type]  # unused
    child.standstills = [(0.0, 100), (0.0, 200), (90_000.0, 200), (99_000.0, 300)]
    assert child.recent_standstills(100_000.0, 200) == [
        (0.0, 200),
        (90_000.0, 200),
        (99_000.0, 300),
    ]
    gateway = supervisor._Child("gateway", None, None, 0.0)  # type: ignore[arg-type]  # unused
    gateway.standstills = child.standstills
    assert len(gateway.recent_standstills(100_000.0, 200)) == 2


def test_the_end_waits_for_a_stopped_trainer_by_name_and_stands_not_still_itself(
    watching: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "_TRAINER_END_S", 5.0)
    monkeypatch.setattr(supervisor, "_SAY_WAIT_S", 3.0)
    now = time.monotonic()
    record = StatusRecordWriter(watching._spec.run.heartbeat_map("trainer"), Heartbeat)
    with child_process(["sleep", "60"]) as trainer:
        beat = Heartbeat(pid=trainer.pid, began_s=now, beat_s=now, turn_s=now, moved_s=now)
        record.write(beat)
        trainer.send_signal(signal.SIGSTOP)
        watching._wait_for_trainer(trainer)
        supervisors = watching._records.heartbeats.standstill("supervisor", time.monotonic())
        waits = status(watching).waits
        described = describe_wait(watching._spec.run.root)
    stands = "the trainer has stood still for"
    waiting, late = [line for line in caplog.messages if stands in line and "end" in line]
    assert waiting.startswith(f"waiting for the end of the trainer (process {trainer.pid}): ")
    assert f"(`kill -CONT {trainer.pid}` lets it go on)" in waiting
    assert late.startswith("the trainer did not end within 5 s: ")
    assert supervisors is None
    assert waits.startswith(stands)
    assert described.startswith(stands)
