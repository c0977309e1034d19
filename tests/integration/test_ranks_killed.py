"""Two ranks of one run: one that is killed ends the step of both, and the run resumes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from daemons import Daemons, balances, descendants, free_address, status, wait_for

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

SETTINGS = (
    "learner.ranks=2",
    "agent.batch_size=32",
    "agent.hidden_sizes=[16]",
    "replay.prioritized=true",
    "replay.capacity=50000",
    "learner.warmup_period=300",
    "learner.save_interval=200",
    "learner.eval_interval=0",
    "stop.target_return=none",
    "stop.max_opts=100000000",
    "actors.n_buffer=20",
)


def ranks_of(learner: int) -> list[int]:
    """The processes of the ranks, below torchrun, which has the trainer's place."""
    trainers = [pid for pid in descendants(learner) if b"learner.trainer" in command_of(pid)]
    return [pid for pid in trainers if b"VEDETTE_RANK=1" in of(pid, "environ").split(b"\0")]


def command_of(pid: int) -> bytes:
    return of(pid, "cmdline")


def of(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def listening(pids: list[int]) -> list[str]:
    """The addresses where processes listen, but on loopback, where that can be told."""
    if shutil.which("ss") is None:
        return []
    lines = subprocess.check_output(["ss", "-Htlnp"], text=True).splitlines()
    ours = [line.split()[3] for line in lines if any(f"pid={pid}," in line for pid in pids)]
    return [address for address in ours if not address.startswith(("127.0.0.1:", "[::1]:"))]


def test_a_killed_rank_ends_both_and_the_run_goes_on_from_its_checkpoint(daemons: Daemons) -> None:
    run = daemons.place / "run"
    address = free_address()
    learner = daemons.start(
        "learner",
        "learner",
        "--env",
        "CartPole-v1",
        "--agent",
        "dqn",
        "--out",
        run,
        "--bind",
        address,
        *SETTINGS,
    )
    daemons.start("actors", "actors", "--learner", address, "--count", 1)

    def steps(epoch: int) -> int:
        found = status(address)
        return found.get("opt_steps", 0) if found.get("epoch") == epoch else 0

    def saved() -> int:
        return max((int(path.name) for path in (run / "checkpoints").glob("[0-9]*")), default=0)

    wait_for(lambda: steps(1) > 100 and saved(), "a checkpoint of both ranks", 90.0)
    for epoch, victim in ((1, 1), (2, 0)):
        both = ranks_of(learner.pid)
        assert len(both) == 2
        assert listening([*both, *descendants(learner.child("trainer"))]) == []
        before = saved()
        os.kill(both[victim], signal.SIGKILL)
        wait_for(lambda: steps(epoch + 1) > before + 50, "optimization steps", 90.0)  # noqa: B023
        assert not set(both) & set(ranks_of(learner.pid))
    both = ranks_of(learner.pid)
    assert learner.stop(60.0) == 0, learner.log
    assert [pid for pid in both if Path(f"/proc/{pid}").exists()] == []
    assert learner.log.count("the trainer died (signal 9") == 2
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["exit_reason"], summary["epoch"]) == ("interrupted", 3)
    assert saved() == summary["opt_steps"], "the last checkpoint is written at the end"
    assert balances(summary["samples"]), summary["samples"]
    assert summary["samples"]["lost"] == summary["samples"]["duplicates"] == 0


def test_ranks_die_with_a_killed_learner(daemons: Daemons) -> None:
    run = daemons.place / "run"
    address = free_address()
    learner = daemons.start(
        "learner",
        "learner",
        "--env",
        "CartPole-v1",
        "--agent",
        "dqn",
        "--out",
        run,
        "--bind",
        address,
        *SETTINGS,
    )
    wait_for(lambda: len(ranks_of(learner.pid)) == 2, "both ranks", 60.0)
    below = descendants(learner.pid)
    learner.kill9()
    wait_for(lambda: not [pid for pid in below if command_of(pid)], "the end of all", 20.0)
