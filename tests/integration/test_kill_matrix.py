"""What each death costs: real processes, real kills, and the proof in the replay."""

from __future__ import annotations

import os
import signal
import time

import pytest
from counting_run import ENVS, N_BUFFER, WINDOW_BATCHES, CountingRun
from daemons import Daemons, inserted, kill_child, wait_for

pytestmark = pytest.mark.timeout(600)


def test_a_killed_learner_or_part_of_it_costs_no_sample(daemons: Daemons) -> None:
    """Samples flow again before the trainer is up."""
    run = CountingRun(daemons)
    run.start_manager("a")
    run.start_manager("b")
    run.flows()
    for part in ("trainer", "gateway"):
        kill_child(run.learner, part)
    run.flows()
    before = inserted(run.address)
    run.learner.kill9()
    run.start_learner()
    trainer = run.learner.child("trainer")
    os.kill(trainer, signal.SIGSTOP)
    assert run.flows() > before
    os.kill(trainer, signal.SIGCONT)
    run.assert_nothing_was_lost()


def test_a_killed_actor_costs_its_unfinished_batch_a_killed_manager_its_window(
    daemons: Daemons,
) -> None:
    run = CountingRun(daemons)
    a, b = run.start_manager("a"), run.start_manager("b")
    run.flows()
    actor, other = a.child("actor"), b.child("actor")
    os.kill(actor, signal.SIGKILL)
    b.kill9()
    wait_for(lambda: a.children("actor") not in ([], [actor]), "another actor")
    run.start_manager("b")  # whoever started it starts it again: the same id, another incarnation
    run.flows()
    proof, accounting = run.finish()
    assert set(proof.missing) <= {actor, other}, f"{proof}"
    # The step it was in has not even reached the batch.
    assert proof.missing.get(actor, 0) <= N_BUFFER + ENVS, f"{proof}"
    assert proof.missing.get(other, 0) <= (WINDOW_BATCHES + 3) * N_BUFFER + ENVS, f"{proof}"
    assert accounting["lost"] <= proof.missing.get(other, 0), f"{proof}, {accounting}"
    assert accounting["in_flight"] == 0, f"{accounting}"


@pytest.mark.slow
def test_a_host_that_stands_still_for_a_while_costs_no_sample(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    a = run.start_manager("a")
    run.start_manager("b")
    run.flows()
    freeze([a.pid], 6.0)
    run.flows()
    freeze([run.learner.pid, *run.learner.children()], 10.0)
    run.flows()
    run.assert_nothing_was_lost()


@pytest.mark.slow
def test_a_learner_that_stands_still_for_a_minute_costs_no_sample(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    run.start_manager("a")
    run.flows()
    freeze([run.learner.pid, *run.learner.children()], 60.0)
    run.flows()
    run.assert_nothing_was_lost()


@pytest.mark.slow
def test_ten_kills_of_the_learner_in_a_row_cost_no_sample(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    for name in ("a", "b", "c"):
        run.start_manager(name)
    run.flows()
    for kill in range(10):
        run.learner.kill9()
        run.start_learner()
        time.sleep(0.5 * kill)  # at every stage of its start
    run.flows()
    run.assert_nothing_was_lost()


def freeze(pids: list[int], seconds: float) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
