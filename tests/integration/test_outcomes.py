"""Every kind of ending: the exit status is right, and no process is left."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from daemons import (
    Daemon,
    Daemons,
    balances,
    flows,
    free_address,
    inserted,
    kill_child,
    status,
    wait_for,
)

from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.state_file import check_state
from vedette_services.config import read_config
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import read_events
from vedette_services.run.outcome import read_summary

pytestmark = pytest.mark.timeout(600)

ROLES = {"learner", "actors", "gateway", "trainer", "evaluator", "actor"}
END_S = 300.0
"""Bounds a hang. What takes seconds on a quiet machine takes ten times as long on a busy one."""
QUICK = (
    "agent.hidden_sizes=[16]",
    "learner.warmup_period=200",
    "learner.eval_interval=100000",
    "actors.count=1",
    "actors.envs_per_actor=2",
    "actors.n_buffer=20",
    "env.kwargs.sleep_s=0.002",
    "replay.capacity=100000",
    # The limiter keeps the trainer slow: what ends is looked at, not how fast it learns.
    "replay.samples_per_insert=8",
    "agent.batch_size=32",
)


def start(daemons: Daemons, *settings: str, run_in: Sequence[str] = ()) -> Daemon:
    out = daemons.place / "run"
    return daemons.start(
        "run",
        "run",
        "--env",
        "counting_env:Count-v0",
        "--agent",
        "dqn",
        "--out",
        out,
        *QUICK,
        *settings,
        run_in=run_in,
    )


def address_of(run: Daemon) -> Address:
    """Where the learner that `vedette run` started listens, as its command line says."""
    learner = run.child("learner")
    words = Path(f"/proc/{learner}/cmdline").read_text().split("\0")
    return Address.parse(words[words.index("--bind") + 1])


def is_up(daemons: Daemons, run: Daemon) -> Address:
    """Wait until every process of the run is there and it trains."""
    wait_for(lambda: {r for r in ROLES if daemons.alive(r)} == ROLES, "whole family")
    address = address_of(run)
    wait_for(lambda: status(address).get("opt_steps", 0) > 0, "optimization step")
    return address


def assert_all_are_gone(daemons: Daemons) -> None:
    began = time.monotonic()
    wait_for(lambda: not daemons.alive(), f"end of {daemons.alive()}", END_S)
    print(f"all gone {time.monotonic() - began:.1f} s after the exit")


def test_a_run_that_is_done_leaves_nobody(daemons: Daemons) -> None:
    run = start(daemons, "stop.max_opts=30", "evaluation.episodes=2")
    assert run.wait(END_S) == 0
    assert_all_are_gone(daemons)
    summary = read_summary(daemons.place / "run")
    assert (summary["exit_reason"], summary["opt_steps"]) == ("max_opts", 30)
    samples = summary["samples"]
    assert samples["produced"] == samples["inserted"], f"{samples}"
    again = start(daemons, "stop.max_opts=30", "evaluation.episodes=2")
    assert again.wait(END_S) == 0
    assert "already done: it has 30 of 30 optimization steps" in again.log
    assert read_summary(daemons.place / "run")["epoch"] == 1  # nothing was started


@pytest.mark.slow
def test_what_a_killed_run_held_is_lost_once_the_next_start_has_a_manager(
    daemons: Daemons,
) -> None:
    run = start(daemons)
    address = is_up(daemons, run)
    os.kill(run.child("trainer"), signal.SIGSTOP)  # nothing is drawn, so that nothing is taken
    held = wait_for(lambda: status(address).get("samples", {}).get("in_flight"), "held samples")
    run.kill9()
    assert_all_are_gone(daemons)
    again = start(daemons)
    address = is_up(daemons, again)
    assert status(address)["samples"]["lost"] >= held
    again.send(signal.SIGTERM)
    assert again.wait(END_S) == 0
    samples = read_summary(daemons.place / "run")["samples"]
    assert samples["lost"] >= held
    assert balances(samples), f"{samples}"


@pytest.mark.slow
def test_an_end_that_cannot_be_written_is_no_success_and_shows_its_own_figures(
    daemons: Daemons,
) -> None:
    run = start(daemons, "learner.save_interval=10")
    address = is_up(daemons, run)
    checkpoints = daemons.place / "run" / "checkpoints"
    kept = wait_for(lambda: max(Checkpoints(checkpoints, keep=1).list(), default=None), "one")
    for role in ("learner", "trainer"):  # from now on no file of theirs may grow: as a full disk
        resource.prlimit(run.child(role), resource.RLIMIT_FSIZE, (0, 0))
    before = status(address)["opt_steps"]
    wait_for(lambda: status(address).get("opt_steps", 0) > before + 10, "more steps")
    run.send(signal.SIGTERM)
    assert run.wait(END_S) == 1
    assert_all_are_gone(daemons)
    assert "stopped on request after" in run.log
    last = run.log.splitlines()[-1]
    assert "the final checkpoint is not written (File too large: a file may have 0 B" in last
    assert "summary.json is outdated" in last
    ((begins, done),) = re.findall(r"begins at optimization step ([\d,]+), not ([\d,]+)", last)
    assert int(kept.name) <= int(begins.replace(",", "")) < int(done.replace(",", ""))
    assert f", {done} optimization (" in run.log


@pytest.mark.slow
def test_a_new_run_that_is_killed_goes_on_from_an_early_checkpoint(daemons: Daemons) -> None:
    run = start(daemons, "replay.samples_per_insert=0")
    is_up(daemons, run)
    checkpoints = Checkpoints(daemons.place / "run" / "checkpoints", keep=1)
    wait_for(checkpoints.list, "a checkpoint")
    saved = int(checkpoints.list()[-1].name)
    assert 256 <= saved < 10_000  # the first `learner.save_interval`
    run.kill9()
    again = start(daemons, "replay.samples_per_insert=0")
    is_up(daemons, again)
    events, _ = read_events(daemons.place / "run" / "events.jsonl")
    first, second = (event.opt_steps for event in events if event.kind == "epoch")
    assert first == 0
    assert second >= saved
    assert again.stop() == 0


def test_a_learner_stopped_before_it_trains_says_so(daemons: Daemons) -> None:
    run = daemons.place / "run"
    learner = daemons.start("learner", "learner", "--bind", free_address(), "--out", run)
    wait_for((run / "live" / "learning.map").exists, "trainer")
    assert learner.stop() == 0
    assert learner.log.count("stopped while the trainer loads") == 1
    assert "vedette.trainer" not in learner.log  # its start was not waited for
    assert "ended:" not in learner.log
    assert read_summary(run)["exit_reason"] == "interrupted"


@pytest.mark.slow
def test_the_best_model_stays_until_a_start_with_other_evaluations_has_loaded(
    daemons: Daemons,
) -> None:
    first = start(daemons, "stop.max_opts=30", "evaluation.episodes=2", "evaluation.seed=5")
    assert first.wait(END_S) == 0
    run = RunDirectory(daemons.place / "run")
    assert seed_of(run.best) == 5
    settings = run.config_file.read_bytes()
    best = read_summary(run.root)["eval"]
    changed = ("stop.max_opts=60", "evaluation.seed=77")
    for end in (Daemon.kill9, Daemon.stop):
        run.learning_map.unlink(missing_ok=True)
        learner = daemons.start(
            "learner", "learner", "--bind", free_address(), "--out", run.root, *changed
        )
        wait_for(run.learning_map.exists, "trainer")
        end(learner)
        assert (seed_of(run.best), run.config_file.read_bytes()) == (5, settings)
        kept = read_summary(run.root)["eval"]
        assert kept["best_return_mean"] == best["best_return_mean"]
        wait_for(lambda: not daemons.alive(), "end")
    again = start(daemons, *changed)
    assert again.wait(END_S) == 0
    assert (seed_of(run.best), seed_of(run.best_before)) == (77, 5)
    assert read_config(run.config_file).evaluation.seed == 77


def seed_of(model: Path) -> int:
    """The seed of the evaluation that chose a saved model."""
    return int(check_state(model)["seed"])


def test_killed_processes_are_replaced_and_sigterm_to_all_ends_the_run_with_a_checkpoint(
    daemons: Daemons,
) -> None:
    run = start(daemons)
    address = is_up(daemons, run)
    for role in ("actor", "evaluator", "gateway", "trainer", "actors"):
        kill_child(run, role)
    flows(address, 50)
    wait_for(lambda: {r for r in ROLES if daemons.alive(r)} == ROLES, "whole family")
    opt_steps = status(address)["opt_steps"]
    wait_for(lambda: status(address).get("opt_steps", 0) > opt_steps, "optimization step")
    for pid in (*run.children(), run.pid):  # as a service manager does
        os.kill(pid, signal.SIGTERM)
    assert run.wait(END_S) == 0
    assert_all_are_gone(daemons)
    assert "stopped on request" in run.log
    summary = read_summary(daemons.place / "run")
    assert summary["exit_reason"] == "interrupted"
    assert summary["epoch"] == 2  # the trainer was started twice
    kept = Checkpoints(daemons.place / "run" / "checkpoints", keep=1).latest()
    assert kept is not None
    assert int(kept.name) == summary["opt_steps"]


@pytest.mark.parametrize("victim", ["run", pytest.param("learner", marks=pytest.mark.slow)])
def test_a_killed_run_or_learner_takes_all_with_it(daemons: Daemons, victim: str) -> None:
    run = start(daemons)
    is_up(daemons, run)
    os.kill(run.pid if victim == "run" else run.child("learner"), signal.SIGKILL)
    assert run.wait(END_S) == (-signal.SIGKILL if victim == "run" else 1)
    assert_all_are_gone(daemons)
    if victim == "learner":
        assert "the learner ended with signal 9" in run.log.splitlines()[-1]


def test_a_second_signal_leaves_at_once(daemons: Daemons) -> None:
    run = start(daemons)
    is_up(daemons, run)
    os.kill(run.child("trainer"), signal.SIGSTOP)  # it will not write its last checkpoint
    run.send_group(signal.SIGINT)
    time.sleep(0.2)
    run.send(signal.SIGTERM)  # so soon it is the same request, told twice
    time.sleep(1.0)
    assert run.running
    run.send(signal.SIGTERM)
    assert run.wait(END_S) == 1
    assert_all_are_gone(daemons)
    said = "cut short by a second signal, before the last checkpoint: there is no checkpoint"
    assert said in run.log.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_sigterm_to_every_process_of_a_learner_writes_the_checkpoint(
    daemons: Daemons, number: signal.Signals
) -> None:
    learner, address = start_learner(daemons, "agent.hidden_sizes=[2048,2048]")
    play(daemons, address)
    wait_for(lambda: status(address).get("opt_steps", 0) > 0, "optimization step")
    os.kill(learner.child("trainer"), number)
    time.sleep(0.05)  # it would be in the middle of its checkpoint
    learner.send_group(number)
    assert learner.wait(END_S) == 0
    summary = read_summary(daemons.place / "run")
    assert summary["exit_reason"] == "interrupted"
    kept = Checkpoints(daemons.place / "run" / "checkpoints", keep=1).latest()
    assert kept is not None
    assert int(kept.name) == summary["opt_steps"]
    assert balances(summary["samples"])


@pytest.mark.slow
def test_ctrl_c_doubled_by_timeout_is_one_request(daemons: Daemons) -> None:
    learner, address = start_learner(daemons, run_in=("timeout", "100"))
    play(daemons, address)
    wait_for(lambda: status(address).get("opt_steps", 0) > 0, "optimization step")
    learner.send_group(signal.SIGINT)  # `timeout` passes on what its child has got already
    assert learner.wait(END_S) == 0
    assert "second signal" not in learner.log
    assert any((daemons.place / "run" / "checkpoints").iterdir())


@pytest.mark.slow
def test_sigterm_ends_a_run_that_goes_on_when_started_again(daemons: Daemons) -> None:
    run = start(daemons)
    is_up(daemons, run)
    run.send(signal.SIGTERM)
    assert run.wait(END_S) == 0
    assert_all_are_gone(daemons)
    again = start(daemons)
    assert status(is_up(daemons, again))["epoch"] == 2
    again.send(signal.SIGTERM)
    assert again.wait(END_S) == 0
    assert_all_are_gone(daemons)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_run_that_is_stopped_while_it_starts_leaves_nobody(
    daemons: Daemons, number: signal.Signals
) -> None:
    run = start(daemons)
    taken = 1 << (number - 1)
    wait_for(lambda: run.running and caught(run.pid) & taken, "word that it takes signals")
    for _ in range(4):  # at some moment of its start, not always the same
        if daemons.alive("learner"):
            break
        time.sleep(0.1)
    run.send_group(number)
    assert run.wait(END_S) == 0
    assert_all_are_gone(daemons)
    assert "Traceback" not in run.log
    assert "writes a checkpoint" not in run.log


def caught(pid: int) -> int:
    """The signals that a process has handlers for, as a bit map, but for Python's own SIGINT."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = int(status.partition("SigCgt:\t")[2].split()[0], 16)
    return found if found & 1 << (signal.SIGTERM - 1) else 0


def start_learner(
    daemons: Daemons, *settings: str, run_in: Sequence[str] = ()
) -> tuple[Daemon, Address]:
    address = free_address()
    learner = daemons.start(
        "learner",
        "learner",
        "--env",
        "counting_env:Count-v0",
        "--agent",
        "dqn",
        "--bind",
        address,
        "--out",
        daemons.place / "run",
        *QUICK,
        *settings,
        run_in=run_in,
    )
    return learner, address


def play(daemons: Daemons, address: Address, name: str = "actors") -> Daemon:
    """One actor of a manager of its own."""
    arguments = ("--learner", address, "--count", 1, "--allow-import", "counting_env")
    return daemons.start(name, "actors", *arguments)


def test_an_environment_that_raises_ends_the_run_with_its_own_line(
    daemons: Daemons,
) -> None:
    run = start(daemons, "env.kwargs.breaks_at=21", "actors.count=2")
    actors = daemons.place / "run" / "log" / "actors.log"
    died = "died: ValueError: sensor lost"
    wait_for(lambda: actors.exists() and died in actors.read_text(), "death")
    began = time.monotonic()
    assert run.wait(END_S) == 1
    print(f"ended {time.monotonic() - began:.1f} s after the first death")
    last = run.log.splitlines()[-1]
    assert re.search(r"ValueError: sensor lost \(counting_env\.py:\d+, in step\)", last), last
    assert "starting it again" not in run.log
    assert_all_are_gone(daemons)


@pytest.mark.slow
def test_a_manager_elsewhere_goes_on_trying_and_the_status_has_the_error(daemons: Daemons) -> None:
    _, address = start_learner(daemons, "env.kwargs.breaks_at=21")
    actors = play(daemons, address)

    def errors() -> list[str]:
        managers = status(address).get("managers", [])
        return [actor["error"] for manager in managers for actor in manager["actors"]]

    wait_for(lambda: "sensor lost" in actors.log and any(errors()), "error in the status")
    assert "ValueError: sensor lost (counting_env.py:" in errors()[0]
    wait_for(lambda: actors.log.count("sensor lost") > 2, "more tries")
    assert actors.running


@pytest.mark.slow
def test_daemons_by_hand_obey_ctrl_c_and_a_second_one_at_once(daemons: Daemons) -> None:
    learner, address = start_learner(daemons)
    actors = [play(daemons, address, f"actors{i}") for i in range(2)]
    flows(address, 50)
    actors[0].send_group(signal.SIGINT)
    assert actors[0].wait(END_S) == 0
    before = inserted(address)
    learner.send_group(signal.SIGINT)
    assert learner.wait(END_S) == 0
    assert actors[1].running  # it waits for the learner to come back
    assert read_summary(daemons.place / "run")["samples"]["inserted"] >= before
    actors[1].send_group(signal.SIGINT)
    time.sleep(1.1)
    if actors[1].running:
        actors[1].send_group(signal.SIGINT)
    assert actors[1].wait(END_S) in (0, 1)
    assert_all_are_gone(daemons)


TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"


@pytest.mark.slow
@pytest.mark.parametrize("what", ["run", "learner"])
def test_a_session_that_ends_stops_a_run_with_a_checkpoint(daemons: Daemons, what: str) -> None:
    """As ssh does: the terminal's other side goes away, and SIGHUP comes."""
    terminal = (sys.executable, "-c", TERMINAL)
    if what == "run":
        session = start(daemons, run_in=terminal)
        address = is_up(daemons, session)
    else:
        session, address = start_learner(daemons, run_in=terminal)
        play(daemons, address)
    wait_for(lambda: status(address).get("opt_steps", 0) > 0, "optimization step")
    session.kill9()
    wait_for(lambda: not daemons.alive("learner"), "end of the learner")
    summary = read_summary(daemons.place / "run")
    assert summary["exit_reason"] == "interrupted"
    kept = Checkpoints(daemons.place / "run" / "checkpoints", keep=1).latest()
    assert kept is not None
    assert int(kept.name) == summary["opt_steps"]
