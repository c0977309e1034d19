"""Real daemons whose agent, of a user's own or DQN, learns from sequences what it must remember."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from daemons import ROOT, START_S, Daemon, Daemons, balances, environment, free_address, status
from daemons import wait_for as wait_until

RATIO = 64.0
WARMUP = 300
SETTINGS = (
    "replay.sequence=3",
    "replay.burn_in=2",
    "replay.prioritized=true",
    f"replay.samples_per_insert={RATIO}",
    "agent.learning_rate=0.003",
    "agent.discount=0.9",
    f"learner.warmup_period={WARMUP}",
    "actors.envs_per_actor=4",
    "actors.n_buffer=16",
)
ALLOWED = ("--allow-import", "gru_agent", "--allow-import", "vedette_rl")


class MemoryRun:
    """A learner and a manager that play the example of the documentation."""

    def __init__(
        self, daemons: Daemons, agent: str = "gru_agent:Gru", settings: Sequence[str] = SETTINGS
    ) -> None:
        self._daemons = daemons
        self._agent = agent
        self._settings = settings
        self.out = daemons.place / "run"
        self.address = free_address()
        examples = ROOT / "docs" / "examples"
        path = os.pathsep.join([str(examples), environment("")["PYTHONPATH"]])
        self._run_in = ("env", f"PYTHONPATH={path}")

    def start_learner(self, *settings: str) -> Daemon:
        of_run = ("--out", self.out, "--bind", self.address, "--insecure")
        plays = ("--env", "vedette_rl.testing:RepeatFirst", "--agent", self._agent)
        words = ("learner", *plays, *of_run, *self._settings, *settings)
        return self._daemons.start("learner", *words, run_in=self._run_in)

    def start_manager(self) -> Daemon:
        joins = ("--learner", self.address, "--id", "a", "--insecure")
        words = ("actors", *joins, *ALLOWED)
        return self._daemons.start("a", *words, run_in=self._run_in)

    def command(self, *words: object) -> Daemon:
        """Start a command that reads the run."""
        name = f"command{len(self._daemons.started)}"
        return self._daemons.start(name, *words, *ALLOWED, run_in=self._run_in)

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(self.out / "summary.json").read_text())
        return found

    def opt_steps(self) -> int:
        return int(status(self.address).get("opt_steps", 0))


@pytest.mark.timeout(300)
def test_an_agent_learns_to_remember_though_its_learner_is_killed(daemons: Daemons) -> None:
    run = MemoryRun(daemons)
    learner = run.start_learner("learner.eval_interval=0", "learner.save_interval=50")
    manager = run.start_manager()
    wait_until(lambda: run.opt_steps() > 60, "optimization steps")
    learner.kill9()
    # So many steps, and no target: they need the manager back, and the limiter's ratio to hold.
    learner = run.start_learner("learner.eval_interval=50", "stop.max_opts=1000")
    assert learner.wait(START_S) == 0
    assert manager.wait(START_S) == 0
    summary = run.summary
    assert summary["opt_steps"] == 1000
    assert summary["eval"]["best_return_mean"] == 1.0, "a policy without memory returns 0.5"
    assert balances(summary["samples"])
    assert summary["samples"]["lost"] == summary["samples"]["rejected"] == 0
    assert summary["limiter"]["samples_per_insert"] == pytest.approx(RATIO, rel=0.2)

    again = run.command("rerun", run.out)
    assert again.wait(START_S) == 0
    assert "equal: " in again.log, "over the kill"


@pytest.mark.slow  # four starts; what settings may change, and the words, have tests of their own
@pytest.mark.timeout(300)
def test_sequences_may_have_another_length_and_are_not_given_up(daemons: Daemons) -> None:
    run = MemoryRun(daemons)
    learner = run.start_learner("learner.eval_interval=0", "stop.max_opts=1")
    manager = run.start_manager()
    assert learner.wait(START_S) == 0
    assert manager.wait(START_S) == 0
    learner = run.start_learner("replay.sequence=4", "replay.burn_in=0")
    assert learner.wait(START_S) == 0
    assert "changed replay.sequence: 3 -> 4" in learner.log
    learner = run.start_learner("replay.sequence=0")
    assert learner.wait(START_S) == 2
    assert "replay.sequence: the run in" in learner.log
    assert "has samples made with 4, not 0; set replay.sequence=4" in learner.log


@pytest.mark.timeout(300)
def test_actors_play_on_until_the_first_sequence_is_whole(daemons: Daemons) -> None:
    """None is for far more rows than limiter and warm-up let in: each of 64 environments has a few
    of so many steps."""
    run = MemoryRun(daemons)
    learner = run.start_learner(
        "env.kwargs.steps=200",
        "replay.sequence=60",
        "replay.burn_in=0",
        "learner.warmup_period=64",
        "actors.envs_per_actor=64",
        "replay.samples_per_insert=4000",
        "stop.max_opts=1",
    )
    manager = run.start_manager()
    assert learner.wait(START_S) == 0
    assert manager.wait(START_S) == 0
    assert run.summary["opt_steps"] == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_dqn_with_memory_solves_what_it_cannot_without(daemons: Daemons) -> None:
    """The learner is killed in between; the exported policy is played by another process."""
    run = MemoryRun(daemons, "dqn")
    of_agent = (
        "env.kwargs.steps=10",
        "replay.sequence=8",
        "agent.memory=gru",
        "agent.memory_size=32",
        "agent.hidden_sizes=[32]",
    )
    learner = run.start_learner(*of_agent, "learner.eval_interval=0", "learner.save_interval=50")
    manager = run.start_manager()
    wait_until(lambda: run.opt_steps() > 60, "optimization steps")
    learner.kill9()
    ends = ("learner.eval_interval=200", "stop.target_return=1.0", "stop.max_opts=4000")
    learner = run.start_learner(*of_agent, *ends)
    assert learner.wait(START_S) == 0
    assert manager.wait(START_S) == 0
    summary = run.summary
    assert summary["exit_reason"] == "target_return", "a policy without memory returns 0.5"
    assert balances(summary["samples"])
    assert summary["samples"]["rejected"] == 0

    again = run.command("rerun", run.out)
    assert again.wait(START_S) == 0
    assert "equal: " in again.log, "over the kill"

    check_exported(run)


def check_exported(run: MemoryRun) -> None:
    """A run's policy, and what it is exported to, name each sign in other processes."""
    policy = run.out.parent / "policy.npz"
    exported = run.command("export", run.out, "--format", "numpy", "--out", policy)
    assert exported.wait(START_S) == 0
    for played in (run.out, policy):
        evaluated = run.command("eval", played, "--episodes", 40, "--json")
        assert evaluated.wait(START_S) == 0
        assert '"return_mean": 1.0' in evaluated.log
    onnx = run.command("export", run.out, "--format", "onnx", "--out", run.out.parent / "p.onnx")
    assert onnx.wait(START_S) == 0


@pytest.mark.slow  # its parts have tests of their own: the step, the queue, what is remembered
@pytest.mark.timeout(400)
def test_appo_with_memory_solves_what_it_cannot_without(daemons: Daemons) -> None:
    """From a queue; the learner is killed in between."""
    of_agent = (
        "env.kwargs.steps=10",
        "agent.memory=gru",
        "agent.memory_size=32",
        "agent.hidden_sizes=[32]",
        "agent.learning_rate=0.003",
        "agent.entropy_coef=0.01",
        "replay.sequence=32",
        "replay.block=1024",
    )
    run = MemoryRun(daemons, "appo", of_agent)
    learner = run.start_learner("learner.eval_interval=0", "learner.save_interval=50")
    manager = run.start_manager()
    wait_until(lambda: run.opt_steps() > 60, "optimization steps")
    learner.kill9()
    ends = ("learner.eval_interval=200", "stop.target_return=1.0", "stop.max_opts=6000")
    learner = run.start_learner(*ends)
    assert learner.wait(300) == 0
    assert manager.wait(START_S) == 0
    summary = run.summary
    assert summary["exit_reason"] == "target_return", "a policy without memory returns 0.5"
    assert balances(summary["samples"])
    assert summary["samples"]["rejected"] == 0
    check_exported(run)
