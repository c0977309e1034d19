"""A trainer or a gateway that stands still for a minute: the status, its exit status and the log
say so, and it is started again; what may take long is left alone."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

import pytest
from daemons import Daemons, flows, free_address, status, vedette, wait_for

from vedette_services.net.addresses import Address

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
PTRACE_DETACH = 17

QUICK = (
    "agent.hidden_sizes=[16]",
    "learner.warmup_period=200",
    "stop.max_seconds=100000",
    "learner.save_interval=200",
    "stop.target_return=1e9",
    "replay.samples_per_insert=8",
)


class Run:
    """A learner and a manager that train CartPole-v1."""

    def __init__(self, daemons: Daemons) -> None:
        self.address = free_address()
        self.out = daemons.place / "run"
        self.learner = daemons.start(
            *("learner", "learner", "--env", "CartPole-v1", "--agent", "dqn"),
            *("--bind", self.address, "--out", self.out, *QUICK),
        )
        daemons.start("actors", "actors", "--learner", self.address, "--count", 1)
        wait_for(lambda: (status(self.address).get("opt_steps") or 0) > 300, "optimization")

    def asked(self, *where: object) -> subprocess.CompletedProcess[str]:
        """``vedette status``."""
        return subprocess.run(
            vedette("status", *where, "--json"), capture_output=True, text=True, timeout=60
        )


def said(address: Address) -> str:
    return str(status(address).get("waits", ""))


def test_a_stopped_trainer_is_said_fails_health_checks_and_is_started_again(
    daemons: Daemons,
) -> None:
    run = Run(daemons)
    assert run.asked("--learner", run.address).returncode == 0
    trainer = run.learner.child("trainer")
    os.kill(trainer, signal.SIGSTOP)
    began = time.monotonic()
    wait_for(lambda: said(run.address).startswith("the trainer has stood still"), "words", 30.0)
    assert time.monotonic() - began > 8.0
    found = status(run.address)
    assert found["rates"]["opt_steps_per_sec"] == 0.0
    assert run.asked("--learner", run.address).returncode == 0  # not hung yet
    wait_for(lambda: status(run.address)["heartbeat"]["hung"], "hung trainer", 60.0)
    asked = run.asked("--learner", run.address)
    assert asked.returncode == 1
    assert "the trainer has stood still" in asked.stderr
    wait_for(lambda: trainer not in run.learner.children("trainer"), "restart", 120.0)
    before = found["opt_steps"]
    wait_for(lambda: (status(run.address).get("opt_steps") or 0) > before, "more steps")
    assert run.asked("--learner", run.address).returncode == 0
    assert "starting it again" in run.learner.log
    assert run.learner.stop() == 0


def test_a_stopped_gateway_is_said_and_started_again(daemons: Daemons) -> None:
    run = Run(daemons)
    gateway = run.learner.child("gateway")
    os.kill(gateway, signal.SIGSTOP)
    wait_for(lambda: "the gateway has stood still" in run.learner.log, "line", 60.0)
    time.sleep(6.0)  # for the summary, which is written every 5 s
    asked = run.asked(run.out)
    assert asked.returncode == 1
    assert "the gateway has stood still" in asked.stderr
    wait_for(lambda: gateway not in run.learner.children("gateway"), "restart", 120.0)
    flows(run.address)
    assert run.learner.stop() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="ptrace")
def test_a_trainer_in_a_debugger_is_said_and_left_alone(daemons: Daemons) -> None:
    run = Run(daemons)
    trainer = run.learner.child("trainer")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, trainer, None, None):
        pytest.skip(f"processes may not be traced here: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(PTRACE_INTERRUPT, trainer, None, None)
    wait_for(lambda: "a debugger or tracer holds its process" in said(run.address), "words", 30.0)
    time.sleep(75.0)  # longer than a stopped one may stand
    assert status(run.address)["heartbeat"]["hung"] == 0
    assert run.asked("--learner", run.address).returncode == 0
    os.waitpid(trainer, 0x40000000)  # __WALL: it is no child of ours
    libc.ptrace(PTRACE_DETACH, trainer, None, None)
    wait_for(lambda: not said(run.address).startswith("the trainer"), "goes on")
    assert run.learner.child("trainer") == trainer
    assert run.learner.stop() == 0


def test_a_learner_that_was_suspended_for_two_minutes_restarts_nobody(daemons: Daemons) -> None:
    run = Run(daemons)
    everybody = [run.learner.pid, *run.learner.children()]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(120.0)
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)
    flows(run.address)
    time.sleep(5.0)
    assert sorted([run.learner.pid, *run.learner.children()]) == sorted(everybody)
    assert "starting it again" not in run.learner.log
    assert run.learner.stop() == 0
