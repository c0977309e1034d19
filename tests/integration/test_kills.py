"""The learner is killed again and again while actors push at full speed."""

import os
import signal
from pathlib import Path

import pytest
from counting_run import CountingRun
from daemons import Daemons, flows
from kills import kill_often
from trial import Trial


def test_samples_flow_again_before_the_trainer_is_up(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    run.start_manager("a")
    run.flows()
    run.learner.kill9()
    run.start_learner()
    trainer = run.learner.child("trainer")
    os.kill(trainer, signal.SIGSTOP)
    flows(run.address)
    os.kill(trainer, signal.SIGCONT)
    proof, accounting = run.finish()
    assert proof.whole, f"{proof}, accounting {accounting}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_learner_killed_again_and_again_at_full_speed_keeps_every_row_once(
    tmp_path: Path,
) -> None:
    with Trial("kills", tmp_path) as trial:
        kill_often(trial, 12, seed=1)
        assert not trial.wrong
