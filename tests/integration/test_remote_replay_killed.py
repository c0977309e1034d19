"""`vedette.Replay` in a process of its own, fed by real managers, and killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from daemons import (
    HERE,
    Daemon,
    Daemons,
    environment,
    free_address,
    inserted,
    kill_child,
    wait_for,
)
from loop_run import LoopRun

import vedette

pytestmark = pytest.mark.timeout(240)


@pytest.mark.slow
def test_a_loop_draws_what_actors_play_by_its_models_and_its_end_ends_them(
    daemons: Daemons,
) -> None:
    run = LoopRun(daemons)
    manager = run.start_manager("a")
    run.flows()
    wait_for(lambda: run.status()["opt_steps"] > 50, "batches")
    wait_for(lambda: run.status()["managers"][0]["actors"][0]["version"] > 20, "newer model")
    assert run.learner.stop() == 0
    assert manager.wait(20.0) == 0  # told that the run is over
    assert "the run is over (loop_ended)" in manager.log
    assert run.summary["exit_reason"] == "loop_ended"
    run.assert_nothing_was_lost()


@pytest.mark.slow
def test_a_loop_that_is_killed_or_whose_gateway_is_costs_no_sample(daemons: Daemons) -> None:
    run = LoopRun(daemons, "replay.prioritized=true")
    managers = [run.start_manager("a"), run.start_manager("b")]
    run.flows()
    kill_child(run.learner, "gateway")
    run.flows()
    for down_s in (0.0, 1.5, 0.0):
        before = inserted(run.address)
        batches = run.status()["opt_steps"]
        run.learner.kill9()
        time.sleep(down_s)
        run.start_learner()
        assert run.flows() > before
        assert run.status()["opt_steps"] >= batches  # models get newer, as the batches drawn do
    assert all(manager.running for manager in managers)
    run.assert_nothing_was_lost()


@pytest.mark.slow
def test_actors_wait_for_a_loop_that_was_interrupted(daemons: Daemons) -> None:
    run = LoopRun(daemons)
    manager = run.start_manager("a")
    run.flows()
    run.learner.send(signal.SIGINT)
    assert run.learner.wait(30.0) != 0  # KeyboardInterrupt went through the block
    assert "KeyboardInterrupt" in run.learner.log
    assert run.summary["exit_reason"] == "interrupted"
    run.start_learner()
    run.flows()
    assert manager.running
    run.assert_nothing_was_lost()


@pytest.mark.slow
def test_the_example_goes_on_after_a_kill_with_all_its_rows(
    daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(daemons.place)
    examples = HERE.parents[1] / "docs" / "examples"
    address = free_address()
    code = (
        f"import sys; sys.path.insert(0, {str(examples)!r}); import custom_loop; "
        f"custom_loop.main(custom_loop.Args(bind={str(address)!r}, total_timesteps=1_500, "
        "learning_starts=200, batch_size=32))"
    )
    loop = Daemon("loop", daemons, [sys.executable, "-c", code])
    daemons.started.append(loop)
    manager = daemons.start(
        "a",
        "actors",
        "--learner",
        address,
        "--count",
        "1",
        "--id",
        "a",
        "--wait",
        "60",
        "--allow-import",
        "custom_loop",
        run_in=(
            "env",
            f"PYTHONPATH={os.pathsep.join([str(examples), environment('')['PYTHONPATH']])}",
        ),
    )
    wait_for(lambda: "1000: return" in loop.log, "thousandth step", 120.0)
    loop.kill9()
    again = Daemon("again", daemons, [sys.executable, "-c", code])
    daemons.started.append(again)
    assert again.wait(120.0) == 0
    assert manager.wait(20.0) == 0
    assert "1000: return" in again.log, "it does not begin at its checkpoint"
    assert "\n0: return" not in again.log, "it begins anew"
    summary = json.loads((daemons.place / "runs/custom_loop/summary.json").read_text())
    accounting = summary["samples"]
    assert accounting["produced"] == accounting["inserted"] > 1000 / 32
    assert accounting["lost"] == accounting["in_flight"] == 0
    assert summary["opt_steps"] >= 1_500  # those that the kill took from the weights, too


@pytest.mark.slow
def test_a_replay_that_was_closed_leaves_no_file_open(tmp_path: Path) -> None:
    counts = []
    for number in range(3):
        address = str(free_address())
        run = tmp_path / str(number)
        with vedette.Replay(run, env="CartPole-v1", agent="dqn", bind=address):
            pass
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[1] == counts[2]  # the first leaves what is opened once in a process
