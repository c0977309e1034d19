"""A program in C keeps its samples in the outbox of a relay, which is killed, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from c_programs import ROOT
from daemons import Daemon, Daemons, balances, flows, free_address, inserted, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

EXAMPLES = ROOT / "clients" / "c" / "examples"


def test_a_program_in_c_keeps_its_samples_in_the_outbox_of_a_relay(
    fleet: Daemons, tmp_path: Path
) -> None:
    program = tmp_path / "relayed"
    compiled = ["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program)]
    subprocess.run([*compiled, str(EXAMPLES / "relayed.c"), "-lm"], check=True)
    run = tmp_path / "run"
    outbox = tmp_path / "outbox"
    address = free_address()

    def start_learner() -> Daemon:
        cartpole = ("--env", "CartPole-v1", "--out", run, "--bind", address)
        settings = ("replay.samples_per_insert=0", "stop.target_return=none")
        ends = "stop.max_env_steps=30000"
        return fleet.start("learner", "learner", *cartpole, *settings, ends)

    def start_relay() -> Daemon:
        words = [sys.executable, EXAMPLES / "relay.py", address, outbox, program]
        fleet.started.append(Daemon("relay", fleet, [str(word) for word in words]))
        return fleet.started[-1]

    learner = start_learner()
    relay = start_relay()
    flows(address)
    learner.kill9()
    before = sum(path.stat().st_size for path in outbox.glob("*.outbox"))
    wait_for(
        lambda: sum(path.stat().st_size for path in outbox.glob("*.outbox")) > before + 100_000,
        "samples of an offline robot in the outbox",
    )
    relay.kill9()
    learner = start_learner()
    relay = start_relay()
    wait_for(lambda: inserted(address) > 3000, "samples of both processes")
    assert learner.wait(200.0) == 0
    assert relay.wait(60.0) == 0, relay.log
    samples = json.loads((run / "summary.json").read_text())["samples"]
    assert balances(samples), samples
    assert samples["lost"] == samples["dropped"] == 0, samples
    assert not list(outbox.glob("*.outbox"))
