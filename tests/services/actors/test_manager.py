"""The manager daemon and its actors, as processes, against a learner of the tests."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_learner import FakeLearner, a_run, wait_for

from vedette_services.net.addresses import Address

HERE = Path(__file__).parent
CODE = """
import logging, sys
from vedette_services.actors.manager import run_manager
from vedette_services.errors import ServicesError
logging.basicConfig(level=logging.INFO, format="%(message)s")
try:
    print(run_manager(sys.argv[1], count=int(sys.argv[2]) or None, manager_id="m1",
                      wait_s=float(sys.argv[3]), allow_import=sys.argv[4:]))
except ServicesError as error:
    sys.exit(print(error) or error.exit_status)
"""
COUNT = {"id": "actors_test_envs:ActorsCount-v0"}


class ManagerProcess:
    """A manager, and its log. Its family is known by a mark that every child inherits.

    Process ids are used again: a group of the number of a manager that has ended may be anybody's.
    """

    def __init__(
        self,
        address: Address | str,
        count: int,
        log: Path,
        *allow_import: str,
        wait_s: float = 0.0,
        code: str = CODE,
    ) -> None:
        self.log_file = log
        self._mark = f"VEDETTE_TEST_MARK={secrets.token_hex(8)}"
        name, _, value = self._mark.partition("=")
        path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, str(address), str(count), str(wait_s), *allow_import],
                env={
                    "TMPDIR": str(log.parent),
                    **os.environ,
                    "PYTHONPATH": path,
                    "OMP_NUM_THREADS": "1",
                    name: value,
                },
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def actor_pids(self) -> list[int]:
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True
        )
        return [int(pid) for pid in listed.stdout.split()]

    def wait(self, timeout_s: float = 60.0) -> int:
        return self.process.wait(timeout_s)

    def family(self) -> list[int]:
        """Itself and whatever it started, as far as they live."""
        wanted = self._mark.encode()
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if wanted in _environment(pid)]

    def end(self) -> None:
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it ended meanwhile


Start = Callable[..., ManagerProcess]


@pytest.fixture
def start(address: Address, tmp_path: Path) -> Iterator[Start]:
    started: list[ManagerProcess] = []

    def start_one(count: int = 1, *allow_import: str) -> ManagerProcess:
        started.append(ManagerProcess(address, count, tmp_path / "manager.log", *allow_import))
        return started[-1]

    yield start_one
    for manager in started:
        manager.end()


def assert_every_step_arrived_once(learner: FakeLearner) -> None:
    """Each environment's numbers are there once, without holes."""
    obs = learner.column("obs")
    for number in np.unique(obs[:, 0]):
        steps = np.sort(obs[obs[:, 0] == number, 1]).astype(int)
        assert len(np.unique(steps)) == len(steps), "a step stands there twice"
        assert steps[-1] + 1 == len(steps), "a step is missing"


def balanced(learner: FakeLearner) -> None:
    accounting = learner.ledger.accounting()
    assert accounting.produced == accounting.inserted == learner.rows()
    assert accounting.lost == accounting.dropped == accounting.rejected == accounting.in_flight == 0


def test_a_manager_plays_what_the_learner_says_and_ends_when_the_run_is_over(
    address: Address, start: Start
) -> None:
    manager = start(2)
    learner = FakeLearner(address, a_run())
    learner.until(lambda: {batch.actor for batch in learner.batches} == {0, 1}, 60)
    learner.publish(version=7)
    learner.until(lambda: learner.batches[-1].version == 7)
    learner.until(lambda: [actor.alive for actor in learner.report().actors] == [True, True])
    learner.until(lambda: learner.report().actors[0].episodes > 20)
    assert learner.report().actors[0].return_mean == pytest.approx(20, abs=15)
    learner.stop(final=True)
    learner.until(lambda: "gone" in learner.states)
    assert manager.wait() == 0
    assert "draining" in learner.states
    balanced(learner)
    assert not manager.family()
    learner.close()


def test_environments_are_closed_after_a_failure_and_when_the_run_is_over(
    address: Address, start: Start, tmp_path: Path
) -> None:
    still_open = tmp_path / "open"
    still_open.mkdir()
    kwargs = {"open_in": str(still_open), "once": str(tmp_path / "failed"), "at": 50}
    manager = start(1, "actors_test_envs")
    learner = FakeLearner(address, a_run({**COUNT, "kwargs": kwargs}))
    learner.until(lambda: bool(learner.reports) and learner.report().failures == 1, 60)
    count = len(learner.batches)
    learner.until(lambda: len(learner.batches) > count + 2, 60)
    assert len(list(still_open.iterdir())) == 2, "the one that was made again, and the other"
    learner.stop(final=True)
    learner.until(lambda: "gone" in learner.states)
    assert manager.wait() == 0
    assert list(still_open.iterdir()) == []
    learner.close()


def test_the_run_says_how_many_actors_where_the_command_did_not(
    address: Address, start: Start
) -> None:
    start(0)
    learner = FakeLearner(address, a_run(count=3))
    learner.until(lambda: {batch.actor for batch in learner.batches} == {0, 1, 2}, 60)
    learner.close()


def test_actors_come_in_turn_where_there_is_room_for_few(address: Address, start: Start) -> None:
    start(3)
    learner = FakeLearner(address, a_run(), credit=1)
    learner.until(lambda: {batch.actor for batch in learner.batches} == {0, 1, 2}, 60)
    before = len(learner.batches)
    learner.until(lambda: len(learner.batches) >= before + 60, 60)
    since = [batch.actor for batch in learner.batches[before:]]
    assert min(since.count(actor) for actor in range(3)) >= 10
    learner.close()


def test_a_stopped_manager_hands_in_even_unfinished_batches(address: Address, start: Start) -> None:
    manager = start(2, "actors_test_envs")
    run = a_run({**COUNT, "kwargs": {"sleep_s": 0.002}}, n_buffer=1000)
    learner = FakeLearner(address, run)
    learner.until(lambda: bool(learner.reports) and _steps(learner) > 100, 60)
    assert learner.rows() == 0
    manager.process.send_signal(signal.SIGTERM)
    learner.until(lambda: "gone" in learner.states)
    assert manager.wait() == 0
    assert learner.rows() > 100
    assert all(batch.rows < 1000 for batch in learner.batches)
    assert_every_step_arrived_once(learner)
    balanced(learner)
    learner.close()


def _steps(learner: FakeLearner) -> int:
    return sum(actor.env_steps for actor in learner.report().actors)


def test_a_killed_actor_is_started_again_and_nothing_arrives_twice(
    address: Address, start: Start
) -> None:
    manager = start(2, "actors_test_envs")
    slow = {**COUNT, "kwargs": {"sleep_s": 0.001}}
    learner = FakeLearner(address, a_run(slow, restart_min_s=0.05))
    learner.until(lambda: learner.rows() > 200)
    for kill in range(3):
        time.sleep(0.05)
        os.kill(manager.actor_pids()[0], signal.SIGKILL)
        learner.until(
            lambda kill=kill: sum(a.restarts for a in learner.report().actors) == kill + 1, 60
        )
        rows = learner.rows()
        learner.until(lambda rows=rows: learner.rows() > rows + 200, 60)
    assert any("SIGKILL" in actor.error for actor in learner.report().actors)
    manager.process.send_signal(signal.SIGTERM)
    learner.until(lambda: "gone" in learner.states)
    assert manager.wait() == 0
    assert_every_step_arrived_once(learner)
    balanced(learner)
    learner.close()


@pytest.mark.slow
def test_a_learner_that_is_killed_and_comes_back_gets_every_sample_once(
    address: Address, start: Start
) -> None:
    manager = start(2, "actors_test_envs")
    run = a_run({**COUNT, "kwargs": {"sleep_s": 0.0005}})
    learner = FakeLearner(address, run)
    learner.until(lambda: learner.rows() > 500, 60)
    inserted = list(learner.batches)
    for epoch, away_s in ((2, 0.3), (3, 4.0)):  # shorter and longer than the silence it bears
        learner.close()
        time.sleep(away_s)
        learner = FakeLearner(address, a_run(dict(run.env), epoch=epoch), ledger=learner.ledger)
        _until_rows(learner, 500)
        if epoch == 2:
            inserted += learner.batches
    manager.process.send_signal(signal.SIGTERM)
    learner.until(lambda: "gone" in learner.states)
    assert manager.wait() == 0
    learner.batches = inserted + learner.batches
    assert_every_step_arrived_once(learner)
    balanced(learner)
    assert all(actor.restarts == 0 for actor in learner.report().actors)
    learner.close()


def _until_rows(learner: FakeLearner, rows: int) -> None:
    learner.until(lambda: learner.rows() > rows, 60)


def test_without_credit_actors_wait_and_lose_nothing(address: Address, start: Start) -> None:
    manager = start(1, "actors_test_envs")
    learner = FakeLearner(address, a_run(dict(COUNT)), credit=0)
    learner.until(lambda: bool(learner.reports) and learner.report().window_batches > 0, 60)
    learner.serve(1.0)
    steps = _steps(learner)
    learner.serve(1.0)
    assert _steps(learner) == steps
    assert learner.rows() == 0
    learner.credit = 4
    learner.until(lambda: learner.rows() > 2000)
    manager.process.send_signal(signal.SIGTERM)
    learner.until(lambda: "gone" in learner.states)
    assert manager.wait() == 0
    assert_every_step_arrived_once(learner)
    balanced(learner)
    learner.close()


def test_a_learner_that_only_pauses_is_waited_for(address: Address, start: Start) -> None:
    manager = start(1)
    learner = FakeLearner(address, a_run())
    learner.until(lambda: learner.rows() > 100)
    learner.stop(final=False)
    learner.until(lambda: "waiting for it to come back" in manager.log)
    rows = learner.rows()
    learner.until(lambda: learner.rows() > rows + 100)
    learner.close()


def test_a_manager_without_a_learner_ends_at_once_when_told(address: Address, start: Start) -> None:
    manager = start(1)
    wait_for(lambda: "for the learner at" in manager.log)
    manager.process.send_signal(signal.SIGTERM)
    assert manager.wait(5) == 0
    assert manager.log.splitlines()[-1] == "a signal asked it to stop"


@pytest.mark.slow
def test_a_manager_whose_learner_is_gone_says_what_it_loses(address: Address, start: Start) -> None:
    manager = start(1)
    learner = FakeLearner(address, a_run())
    learner.until(lambda: learner.rows() > 100)
    learner.close()
    time.sleep(0.5)
    manager.process.send_signal(signal.SIGTERM)
    assert manager.wait(15) == 0
    assert "samples are lost: the learner did not take them within 10 s" in manager.log
    assert not manager.family()


def test_an_environment_that_ends_its_process_is_told_with_its_own_traceback(
    address: Address, start: Start, tmp_path: Path
) -> None:
    manager = start(1, "actors_test_envs")
    once = {"once": str(tmp_path / "broken"), "at": 200, "sleep_s": 0.001, "how": "exit"}
    told = "its environment's code ended the process: SystemExit: 3 (actors_test_envs.py:"
    learner = FakeLearner(address, a_run({**COUNT, "kwargs": once}))
    learner.until(lambda: bool(learner.reports) and learner.report().actors[0].error != "", 60)
    assert learner.report().actors[0].error.startswith(told)
    assert "in _misbehave" in manager.log
    learner.until(lambda: learner.report().actors[0].restarts == 1, 60)
    rows = learner.rows()
    learner.until(lambda: learner.rows() > rows + 100)
    learner.close()


def test_an_environment_that_fails_once_is_made_again_and_no_actor_dies(
    address: Address, start: Start, tmp_path: Path
) -> None:
    manager = start(1, "actors_test_envs")
    once = {"once": str(tmp_path / "broken"), "at": 200, "sleep_s": 0.001, "how": "die"}
    learner = FakeLearner(address, a_run({**COUNT, "kwargs": once}))
    learner.until(lambda: bool(learner.reports) and learner.report().failures == 1, 60)
    [actor] = learner.report().actors
    told = "failed once, made again: RuntimeError: the environment broke (actors_test_envs.py:"
    assert actor.error.startswith(told)
    assert (actor.alive, actor.restarts) == (True, 0)
    assert "in _misbehave" in manager.log
    rows = learner.rows()
    learner.until(lambda: learner.rows() > rows + 100)
    learner.close()


def test_an_environment_that_hangs_is_killed_and_started_again(
    address: Address, start: Start, tmp_path: Path
) -> None:
    start(1, "actors_test_envs")
    programs = tmp_path / "programs"
    programs.mkdir()
    once = {
        "once": str(tmp_path / "hung"),
        "at": 100,
        "how": "hang",
        "starts_in": str(programs),
    }
    learner = FakeLearner(
        address, a_run({**COUNT, "kwargs": once}, step_timeout_s=1.0, restart_min_s=0.05)
    )
    learner.until(lambda: bool(learner.reports) and learner.report().actors[0].restarts == 1, 60)
    why = learner.report().actors[0].error
    assert why.startswith("waits for step() of an environment for more than 1 s (it is at ")
    assert "in _misbehave): killed; raise actors.step_timeout_s" in why
    rows = learner.rows()
    learner.until(lambda: learner.rows() > rows + 100)
    started = [int(program.name) for program in programs.iterdir()]
    running = [number for number in started if _environment(number)]
    # One was made to see its spaces, and closed. Those of the killed actor could not be.
    assert len(started) - 1 == 2 * len(running) > 0
    learner.close()


@pytest.mark.slow
def test_a_host_where_no_actor_can_play_gives_up_with_the_reason(
    address: Address, start: Start
) -> None:
    manager = start(2, "actors_test_envs")
    run = a_run(dict(COUNT))
    learner = FakeLearner(address, run)
    broken = a_run({"id": "actors_test_envs:NeverMade-v0"}, spaces_from=COUNT)
    learner.run = broken
    learner.until(lambda: manager.process.poll() is not None, 90)
    assert manager.wait() == 1
    assert "no such hardware" in manager.log
    learner.close()


def test_code_that_was_not_allowed_is_not_imported(address: Address, start: Start) -> None:
    manager = start(1)
    learner = FakeLearner(address, a_run(dict(COUNT)))
    learner.until(lambda: manager.process.poll() is not None, 60)
    assert manager.wait() == 3
    assert "--allow-import actors_test_envs" in manager.log
    learner.until(lambda: "gone" in learner.states)  # it was told why, though it left at once
    assert "--allow-import actors_test_envs" in learner.report().actors[0].error
    learner.close()


def test_another_run_at_the_same_address_is_joined_afresh(address: Address, start: Start) -> None:
    manager = start(1, "actors_test_envs")
    learner = FakeLearner(address, a_run(dict(COUNT)))
    learner.until(lambda: learner.rows() > 200)
    learner.close()
    learner = FakeLearner(address, a_run(run_id="other"))
    learner.until(lambda: learner.rows() > 200)
    assert "another run begins" in manager.log
    assert all(batch.run_id == "other" for batch in learner.batches)
    learner.stop(final=True)
    learner.until(lambda: "gone" in learner.states)
    assert manager.wait() == 0
    balanced(learner)
    learner.close()


def test_a_killed_manager_leaves_no_actor_behind(address: Address, start: Start) -> None:
    manager = start(2)
    learner = FakeLearner(address, a_run())
    learner.until(lambda: learner.rows() > 100)
    manager.process.kill()
    manager.process.wait()
    wait_for(lambda: not manager.family())  # no actor outlives it
    learner.close()


def test_a_manager_that_ends_leaves_no_file_behind(
    address: Address, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    manager = start(1)
    learner = FakeLearner(address, a_run())
    learner.until(lambda: learner.rows() > 100)
    assert len(list(scratch.iterdir())) == 1
    learner.stop(final=True)
    learner.until(lambda: "gone" in learner.states)
    assert manager.wait() == 0
    assert list(scratch.iterdir()) == []
    learner.close()


def test_an_actor_is_started_again_though_the_temporary_folder_was_removed(
    address: Address, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    manager = start(2)
    learner = FakeLearner(address, a_run(restart_min_s=0.05))
    learner.until(lambda: learner.rows() > 100)
    # One that has not opened the model's map yet would look for it where it is no more.
    learner.until(lambda: [bool(a.env_steps) for a in learner.report().actors] == [True, True])
    shutil.rmtree(scratch)
    os.kill(manager.actor_pids()[0], signal.SIGKILL)
    learner.until(lambda: sum(actor.restarts for actor in learner.report().actors) == 1)
    learner.publish(version=7)
    learner.until(lambda: [actor.version for actor in learner.report().actors] == [7, 7])
    learner.stop(final=True)
    learner.until(lambda: "gone" in learner.states)
    assert manager.wait() == 0
    assert manager.log.splitlines()[-1] == "the run is over (test)"
    assert list(scratch.iterdir()) == []
    learner.close()
