"""Real daemons that learn from a queue, with `kill -9`: every row is drawn as often as others."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daemons import START_S, Daemon, Daemons, balances, free_address, kill_child, status
from daemons import wait_for as wait_until
from queue_counter import KEYS, NAME

from vedette_rl.replay.frame_ring import open_reader
from vedette_rl.storage.checkpoints import Checkpoints

PASSES = 2


class QueueRun:
    """A learner and a manager."""

    def __init__(self, daemons: Daemons, agent: str, *settings: str) -> None:
        self._daemons = daemons
        self._agent = agent
        self._settings = settings
        self.out = daemons.place / "run"
        self.address = free_address()

    def start_learner(self, *settings: str) -> Daemon:
        of_run = ("--out", self.out, "--bind", self.address, "--insecure")
        plays = ("--env", "CartPole-v1", "--agent", self._agent)
        words = ("learner", *plays, *of_run, *self._settings, *settings)
        return self._daemons.start("learner", *words)

    def start_manager(self, name: str = "a") -> Daemon:
        joins = ("--learner", self.address, "--id", name, "--insecure")
        return self._daemons.start(name, "actors", *joins, "--allow-import", "queue_counter")

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(self.out / "summary.json").read_text())
        return found

    def opt_steps(self) -> int:
        return int(status(self.address).get("opt_steps", 0))

    def limiter_reason(self) -> str:
        return str(status(self.address).get("limiter", {}).get("reason", ""))

    def state(self) -> dict[str, Any]:
        loaded = Checkpoints(self.out / "checkpoints", keep=1).load_latest()
        assert loaded is not None
        return loaded.state


@pytest.mark.timeout(400)
def test_every_row_is_drawn_as_often_as_configured_though_processes_are_killed(
    daemons: Daemons,
) -> None:
    """The ring is far smaller than the run, so that rows are overwritten all the time."""
    run = QueueRun(
        daemons, NAME, "replay.capacity=600", "actors.envs_per_actor=4", "learner.eval_interval=0"
    )
    learner = run.start_learner()
    manager = run.start_manager()
    at = 0
    for victim in ("trainer", "gateway", "learner", "trainer"):
        wait_until(lambda at=at: run.opt_steps() > at + 60, "optimization steps")
        if victim == "learner":
            learner.kill9()
            learner = run.start_learner()
        else:
            kill_child(learner, victim)
        at = run.opt_steps()
    wait_until(lambda: run.opt_steps() > at + 60, "optimization steps")
    assert learner.stop() == 0
    last = int(run.summary["opt_steps"]) + 101
    assert run.start_learner(f"stop.max_opts={last}").wait(START_S) == 0
    state = run.state()

    given, times = np.unique(state["agent"]["rows"], axis=0, return_counts=True)
    queue = state["replay"]
    counts = {name: int(n) for name, n in queue["counts"].items()}
    of_block = int(queue["lengths"].sum())
    assert set(times.tolist()) <= {1, PASSES}, "a row was drawn more often than configured"
    assert int((times == PASSES).sum()) >= counts["trained"] > 2_000
    assert len(given) <= counts["trained"] + of_block, "only the block's rows are not through yet"
    assert counts["stale"] == counts["missed"] == counts["cut_short"] == 0
    assert counts["forgotten"] == 0

    rows = open_reader(run.out / "replay")
    waiting = rows.inserted - int(queue["taken"])
    assert rows.inserted == counts["trained"] + of_block + waiting
    oldest, _ = rows.live()
    numbers = np.arange(oldest, int(queue["place"]))
    live = np.stack([rows.columns[key][numbers % len(rows.columns["t"])] for key in KEYS], axis=1)
    drawn = {tuple(row) for row in given[times == PASSES].tolist()}
    assert len(live), "some are there still"
    assert all(tuple(row) in drawn for row in live.tolist())
    manager.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_appo_learns_though_its_learner_is_killed(daemons: Daemons) -> None:
    run = QueueRun(daemons, "appo", "learner.eval_interval=100", "evaluation.episodes=5")
    learner = run.start_learner()
    manager = run.start_manager()
    wait_until(lambda: run.opt_steps() > 40, "optimization steps")
    learner.kill9()
    learner = run.start_learner("stop.target_return=150", "stop.max_env_steps=200000")
    assert learner.wait(START_S) == 0
    assert manager.wait(START_S) == 0
    summary = run.summary
    assert summary["exit_reason"] == "target_return", "it has learned"
    assert balances(summary["samples"])
    assert summary["samples"]["lost"] == 0


@pytest.mark.timeout(400)
def test_every_strict_block_is_of_one_model_though_everybody_is_killed(daemons: Daemons) -> None:
    """Two managers, and a third that joins late; the run ends by its environment steps."""
    run = QueueRun(
        daemons,
        NAME,
        "replay.strict=true",
        "replay.capacity=600",
        "actors.envs_per_actor=2",
        "actors.count=2",
        "learner.eval_interval=0",
    )
    learner = run.start_learner()
    managers = {name: run.start_manager(name) for name in ("a", "b")}
    at = 0
    wait_until(lambda: "replay.strict" in run.limiter_reason(), "reason of a wait")
    for victim in ("actor", "trainer", "manager", "gateway", "learner"):
        wait_until(lambda at=at: run.opt_steps() > at + 40, f"optimization steps before {victim}")
        match victim:
            case "actor":
                os.kill(managers["a"].children("actor")[0], signal.SIGKILL)
            case "manager":
                managers["b"].kill9()
                managers["c"] = run.start_manager("c")
            case "learner":
                learner.kill9()
                learner = run.start_learner()
            case _:
                kill_child(learner, victim)
        at = run.opt_steps()
    wait_until(lambda at=at: run.opt_steps() > at + 40, "optimization steps behind all kills")
    assert learner.stop() == 0
    steps = int(run.summary["env_steps"]) + 2_000
    assert run.start_learner(f"stop.max_env_steps={steps}").wait(START_S) == 0
    assert run.summary["exit_reason"] == "max_env_steps"
    for name in ("a", "c"):
        assert managers[name].wait(START_S) == 0, "who waits for a model is told of the end"
    state = run.state()
    step, low, high = state["agent"]["models"].T
    assert len(step) > 250
    assert (low == high).all(), "a block has rows of two models"
    steps_of_block = PASSES * 128 // 32
    assert set((step - low).tolist()) == set(range(steps_of_block)), "it begins with that model"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_strict_appo_learns_and_is_evaluated_by_actors(daemons: Daemons) -> None:
    """Evaluations take an actor's time; its learner is killed, and goes back."""
    run = QueueRun(
        daemons,
        "appo",
        "replay.strict=true",
        "agent.learning_rate=0.001",
        "evaluation.where=actors",
        "evaluation.episodes=5",
        "learner.eval_interval=100",
    )
    learner = run.start_learner()
    managers = [run.start_manager(name) for name in ("a", "b")]
    wait_until(lambda: run.opt_steps() > 70, "optimization steps")
    kill_child(learner, "trainer")
    wait_until(lambda: run.opt_steps() > 140, "optimization steps")
    learner.kill9()
    learner = run.start_learner("stop.target_return=120", "stop.max_env_steps=200000")
    assert learner.wait(START_S) == 0
    for manager in managers:
        assert manager.wait(START_S) == 0
    summary = run.summary
    assert summary["exit_reason"] == "target_return", "it has learned"
    assert summary["lag"]["sample_max"] == 0.0
    assert balances(summary["samples"])
