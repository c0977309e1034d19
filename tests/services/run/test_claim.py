"""A claim keeps two learners apart where locks are not shared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from configurations import configured
from run_directories import new_run

from vedette_services.errors import (
    RunInUseError,
    RunMovedError,
    RunTakenOverError,
    SettingError,
    StoppedWaitingError,
)
from vedette_services.net.addresses import Address
from vedette_services.run import claim, directory, hold
from vedette_services.run.claim import ClaimRecord, ClaimWatch, Owner
from vedette_services.run.directory import RunDirectory
from vedette_services.run.learner_location import LearnerLocation, publish_location
from vedette_services.run.provenance import record_provenance

# The waits of this file's processes, which see no locks of each other
BEAT_S = 0.02
STILL_S = 0.5
WAIT_S = 1.0
YIELD_S = 1.0
YIELD_STILL_S = 0.3

OWNER = f"""
import sys, time
from pathlib import Path
from vedette_services.errors import RunLostError
from vedette_services.run import directory, hold
directory.lock_file = lambda file, *, shared=False: False
hold.BEAT_S = {BEAT_S}
run = directory.RunDirectory(Path(sys.argv[1]))
if sys.argv[2] == "blind":
    hold.RunHold.check = lambda self: None
run.lock()
print("locked", flush=True)
written = Path(sys.argv[1]) / "written"
try:
    while True:
        run.check_held()
        written.write_text(str(time.monotonic()))
        time.sleep(0.001)
except RunLostError as error:
    print(error, flush=True)
    sys.exit(error.exit_status)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def no_shared_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lock(file: int, *, shared: bool = False) -> bool:
        return False

    monkeypatch.setattr(directory, "lock_file", no_lock)
    monkeypatch.setattr(hold, "BEAT_S", BEAT_S)
    for name, value in (
        ("STILL_S", STILL_S),
        ("WAIT_S", WAIT_S),
        ("YIELD_S", YIELD_S),
        ("YIELD_STILL_S", YIELD_STILL_S),
    ):
        monkeypatch.setattr(directory, name, value)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    made = new_run(tmp_path / "run")
    yield made
    made.unlock()


@pytest.fixture
def start(run: RunDirectory) -> Iterator[Start]:
    """Starts a learner of another process on the run."""
    started = []

    def begin(how: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", OWNER, str(run.root), how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process run on another machine than the owner."""
    monkeypatch.setattr(claim, "this_boot", lambda: "another")


def test_a_record_that_stands_still_has_no_owner() -> None:
    watch = ClaimWatch("a 1", 100.0, still_s=30.0, wait_s=90.0)
    assert not watch.look("a 1", 129.9)
    assert watch.look("a 1", 130.0)
    assert not watch.moves


def test_an_owner_whose_record_moves_is_waited_for_in_vain_and_then_no_more() -> None:
    watch = ClaimWatch("a 1", 0.0, still_s=30.0, wait_s=90.0)
    assert not any(watch.look(f"a {second}", second) for second in range(2, 90, 2))
    assert watch.look("a 90", 90.0)
    assert watch.moves
    assert not watch.stands_still(90.0)


def test_a_record_that_moved_once_is_looked_at_anew() -> None:
    watch = ClaimWatch("a 1", 0.0, still_s=30.0, wait_s=90.0)
    assert not watch.look("a 2", 29.0)
    assert not watch.look("a 2", 58.0)
    assert watch.look("a 2", 59.0)
    assert watch.stands_still(59.0)


def test_an_owner_of_this_machine_has_ended_once_its_process_has(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = Owner.of_this_process(tmp_path)
    began = claim.process_began(process.pid)
    owner = replace(mine, pid=process.pid, began=began)
    assert not owner.has_ended
    assert replace(owner, began=began + 1).has_ended  # its number is another's now
    assert not replace(owner, boot="another").has_ended
    assert not replace(owner, boot="").has_ended
    assert not replace(owner, namespace="of a container").has_ended
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert owner.has_ended  # nobody has taken its exit status yet
    process.communicate()
    assert owner.has_ended


def test_an_owner_in_another_container_of_this_machine_would_hold_the_lock(
    run: RunDirectory, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start()
    owner = run.identity().owner
    assert owner is not None
    assert owner.would_hold_lock(run.root)
    assert not replace(owner, device=owner.device + 1).would_hold_lock(run.root)
    assert not replace(owner, boot="another").would_hold_lock(run.root)
    process.kill()
    process.wait()
    monkeypatch.setattr(claim, "pid_namespace", lambda: "of a container")
    began = time.monotonic()
    assert not owner.has_ended  # that cannot be told
    monkeypatch.setattr(directory, "lock_file", lambda file, *, shared=False: True)
    run.lock()
    assert time.monotonic() - began < STILL_S


def test_a_record_is_moved_in_place_and_says_that_it_was_released(tmp_path: Path) -> None:
    owner = Owner.of_this_process(tmp_path)
    record = ClaimRecord(tmp_path / "claim")
    assert record.read() == ""
    with pytest.raises(FileNotFoundError):
        record.move(owner)
    record.make(owner)
    file = record.path.stat().st_ino
    first = record.read()
    record.move(owner)
    assert record.read() != first
    assert not record.is_released(owner)
    record.release(owner)
    assert record.is_released(owner)
    assert not record.is_released(replace(owner, token="another"))
    assert record.path.stat().st_ino == file


def test_an_owner_survives_in_run_json_and_a_damaged_one_is_refused(run: RunDirectory) -> None:
    run.lock()
    owner = run.identity().owner
    assert owner is not None
    assert owner.pid == os.getpid()
    run.begin_epoch()
    run.renew_id()
    run.begin_new_run()
    assert run.identity().owner == owner
    record = run.root / "run.json"
    record.write_text(record.read_text().replace('"pid"', '"pit"'))
    with pytest.raises(SettingError, match=r"run\.json: cannot be read: 'pid'; put a whole one"):
        run.identity()


def test_a_learner_that_was_killed_here_is_followed_at_once(
    run: RunDirectory, start: Start
) -> None:
    process = start()
    process.send_signal(signal.SIGKILL)
    process.wait()
    began = time.monotonic()
    run.lock()
    assert time.monotonic() - began < STILL_S
    assert run.taken_from is None


def test_a_learner_that_was_killed_elsewhere_is_followed_once_its_record_stands_still(
    run: RunDirectory, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start()
    process.send_signal(signal.SIGKILL)
    process.wait()
    elsewhere(monkeypatch)
    began = time.monotonic()
    run.lock()
    assert time.monotonic() - began >= STILL_S
    assert run.taken_from is None


def test_a_run_that_was_released_is_taken_at_once_on_any_machine(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.lock()
    run.unlock()
    elsewhere(monkeypatch)
    began = time.monotonic()
    other = RunDirectory(run.root)
    other.lock()
    assert time.monotonic() - began < STILL_S
    other.unlock()


def test_a_learner_that_lives_is_replaced_and_writes_no_more(
    run: RunDirectory, start: Start
) -> None:
    older = start()
    run.lock()
    last = float((run.root / "written").read_text())
    owner = run.identity().owner
    assert owner is not None
    assert owner.pid == os.getpid()
    assert run.taken_from is not None
    assert run.taken_from.pid == older.pid
    text, _ = older.communicate()
    assert older.returncode == 3  # it would only take the run back
    assert text == (
        f"{run.root}: process {os.getpid()} has taken the run over; this learner stops, and "
        "writes no more\n"
    )
    assert last < time.monotonic() - YIELD_STILL_S
    assert float((run.root / "written").read_text()) == last
    run.check_held()


def test_a_learner_that_does_not_see_that_it_is_replaced_keeps_the_run(
    run: RunDirectory, start: Start
) -> None:
    blind = start("blind")
    with pytest.raises(RunInUseError, match=f"process {blind.pid}"):
        run.lock()
    owner = run.identity().owner
    assert owner is not None
    assert owner.pid == blind.pid


def test_a_wait_ends_with_a_request_to_stop(run: RunDirectory, start: Start) -> None:
    blind = start("blind")
    with pytest.raises(StoppedWaitingError) as stopped:
        run.lock(lambda: True)
    assert stopped.value.exit_status == 0
    owner = run.identity().owner
    assert owner is not None
    assert owner.pid == blind.pid


def test_a_lock_that_another_host_does_not_see_is_found_by_the_record(
    run: RunDirectory, start: Start
) -> None:
    assert run.unseen_owner(1.0) is None
    process = start()
    owner = run.unseen_owner(5.0)
    assert owner is not None
    assert owner.pid == process.pid
    process.kill()
    process.wait()
    assert run.unseen_owner(1.0) is None


def test_a_learner_of_an_earlier_version_has_taken_over_without_a_claim(run: RunDirectory) -> None:
    run.lock()
    (run.root / "run.json").write_text(f'{{"run_id": "{run.identity().run_id}", "epoch": 3}}')
    with pytest.raises(RunTakenOverError, match="a learner of an earlier version has taken"):
        run.check_held()


def test_a_learner_that_was_replaced_leaves_what_the_other_says_of_itself(
    run: RunDirectory,
) -> None:
    other = RunDirectory(run.root)
    config = configured(env="CartPole-v1", agent="dqn")
    run.lock()
    with ExitStack() as of_other:
        with record_provenance(config, run), publish_location(run, Address("::1", 6000), None):
            other.lock()
            of_other.callback(other.unlock)
            of_other.enter_context(publish_location(other, Address("::1", 7000), None))
            before = run.provenance_file.read_bytes()
        assert run.provenance_file.read_bytes() == before
        location = LearnerLocation.read(run)
        assert location is not None
        assert location.bind == "[::1]:7000"
    assert not run.location_file.exists()


# The directory


def moved(run: RunDirectory) -> RunMovedError:
    with pytest.raises(RunMovedError) as lost:
        run.check_held()
    return lost.value


def test_a_directory_that_is_renamed_is_lost_until_it_comes_back(run: RunDirectory) -> None:
    run.lock()
    elsewhere = run.root.with_name("renamed")
    run.root.rename(elsewhere)
    error = moved(run)
    assert str(error) == f"{run.root}: it was renamed to {elsewhere} while its learner runs"
    assert error.now == elsewhere
    assert not run.root.exists()
    run.root.mkdir()
    assert moved(run).now == elsewhere
    run.root.rmdir()
    elsewhere.rename(run.root)
    run.check_held()
    assert run.find_loss() is None


def test_a_directory_that_is_removed_or_emptied_is_lost(run: RunDirectory) -> None:
    run.lock()
    record = run.root / "run.json"
    content = record.read_bytes()
    record.unlink()
    assert str(moved(run)).endswith("its run.json was removed while its learner runs")
    record.write_bytes(content)
    run.check_held()
    subprocess.run(["rm", "-r", str(run.root)], check=True)
    assert str(moved(run)).endswith("it was removed while its learner runs")
    run.root.mkdir()
    error = moved(run)
    assert str(error).endswith("it was replaced by another directory while its learner runs")
    assert error.now is None


def test_who_keeps_a_claim_finds_out_by_itself(run: RunDirectory) -> None:
    run.lock()
    assert run.loss is None
    run.root.rename(run.root.with_name("renamed"))
    deadline = time.monotonic() + 10.0
    while run.loss is None and time.monotonic() < deadline:
        time.sleep(BEAT_S)
    assert isinstance(run.loss, RunMovedError)
    with pytest.raises(RunMovedError):
        run.begin_epoch()
