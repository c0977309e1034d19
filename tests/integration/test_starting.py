"""Daemons in any order, twice on one directory, and in one another's way."""

from __future__ import annotations

import os
import socket

import pytest
from counting_run import N_BUFFER, SETTINGS, WINDOW_BATCHES, CountingRun
from daemons import Daemons, status, wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.mark.slow
def test_a_learner_may_start_last_after_a_foreign_program_and_start_again(
    daemons: Daemons,
) -> None:
    run = CountingRun(daemons)
    run.learner.kill9()  # managers come first, and find somebody else
    with socket.create_server((run.address.host, run.address.port)) as foreign:
        foreign.settimeout(30.0)
        manager = run.start_manager("a")
        connection, _ = foreign.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    wait_for(lambda: "waiting for the learner" in manager.log, "word that it waits")
    run.start_learner()
    run.flows()
    first = status(run.address)
    assert run.learner.stop() == 0
    run.start_learner()
    before = run.flows()
    again = status(run.address)
    assert again["run_id"] == first["run_id"]
    assert again["epoch"] == first["epoch"] + 1
    assert before > first["samples"]["inserted"]
    proof, _ = run.finish()
    assert proof.whole, f"{proof}"


def test_a_directory_or_port_that_is_taken_is_said_in_a_line(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    run.start_manager("a")
    run.flows(100)
    same = ("learner", "--env", "counting_env:Count-v0", *SETTINGS, f"env.kwargs.tally={run.tally}")
    second = daemons.start("second", *same, "--out", run.run)
    third = daemons.start("third", *same, "--out", run.run, "--fresh", "--force")
    elsewhere = daemons.place / "elsewhere"
    other = daemons.start("other", *same, "--out", elsewhere, "--bind", run.address)
    for refused in (second, third):
        assert refused.wait(60.0) == 2
        (said,) = refused.log.splitlines()
        holder = run.learner.process.pid
        assert f"{run.run} is in use by another learner (process {holder}); end it" in said
    assert other.wait(60.0) == 1
    assert f"cannot bind {run.address} (samples): Address already" in other.log.splitlines()[-1]
    for said in (second.log, other.log):
        assert "Traceback" not in said
    run.flows(100)  # nobody else was disturbed


@pytest.mark.slow
def test_checkpoints_of_which_none_can_be_read_are_refused_before_the_start(
    daemons: Daemons,
) -> None:
    run = CountingRun(daemons)
    run.start_manager("a")
    run.flows(200)
    assert run.learner.stop() == 0
    before = run.learner.log
    states = list((run.run / "checkpoints").glob("*/state.safetensors"))
    for state in states:
        os.truncate(state, 100)
    run.start_learner()
    assert run.learner.wait(60.0) == 2
    assert states
    (said,) = run.learner.log.removeprefix(before).splitlines()
    assert said.startswith("vedette: cannot read checkpoint ")
    assert said.endswith("aside to learn again from the samples that are there")


@pytest.mark.slow
def test_a_damaged_replay_is_refused_before_anything_starts(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    run.start_manager("a")
    run.flows(200)
    assert run.learner.stop() == 0
    before = run.learner.log
    os.truncate(run.run / "replay" / "000-obs.bin", 5000)
    epoch = (run.run / "run.json").read_text()
    run.start_learner()
    assert run.learner.wait(60.0) == 2
    (said,) = run.learner.log.removeprefix(before).splitlines()
    assert said.endswith(f"delete {run.run / 'replay'} to begin an empty replay")
    assert (run.run / "run.json").read_text() == epoch


def test_what_the_gateway_meets_with_is_said_in_the_last_line(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    wait_for(lambda: (run.run / "live").is_dir(), "the run directory")
    (run.run / "replay").mkdir()
    (run.run / "replay" / "thesis.tex").write_text("since the check")
    assert run.learner.wait(60.0) == 1
    said = run.learner.log.splitlines()[-1]
    assert said.startswith("vedette: ")  # by the supervisor, which recovers replays, or the gateway
    assert "holds 'thesis.tex', which is no part of a replay" in said
    assert "Traceback" not in run.learner.log


@pytest.mark.slow
def test_another_run_at_the_same_address_gets_the_managers_of_the_last(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    manager = run.start_manager("a")
    run.flows(200)
    first = status(run.address)["run_id"]
    run.learner.kill9()
    run.run = daemons.place / "another"
    run.start_learner()
    wait_for(lambda: status(run.address).get("run_id", first) != first, "another run")
    run.flows(500)
    assert "another run begins" in manager.log
    proof, accounting = run.finish()
    assert proof.once_each, f"{proof}"
    assert accounting["lost"] == 0, f"{accounting}"


@pytest.mark.slow
def test_of_two_managers_with_one_id_the_later_one_is_refused(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    run.start_manager("twin")
    run.flows(200)
    # A cloned host: the same id, another incarnation. Both play until it is certain.
    clone = daemons.start(
        "clone",
        "actors",
        "--learner",
        run.address,
        "--id",
        "twin",
        "--count",
        1,
        "--allow-import",
        "counting_env",
    )
    assert clone.wait(60.0) == 3
    assert "refused by the learner: two managers use the id twin: " in clone.log
    run.flows(1500)
    proof, accounting = run.finish()
    assert len(proof.missing) <= 1, f"{proof}: of the clone alone"
    assert accounting["lost"] <= WINDOW_BATCHES * N_BUFFER
