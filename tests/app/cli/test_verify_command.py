"""`vedette verify`: its certificate, and what the report says of it."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from killed_runs import KilledRun, config_of  # of tests/support

from vedette.reports.record import read_record
from vedette_rl.core import Agent, State
from vedette_rl.envs.stored_spaces import spaces_from_json
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.state_file import read_state, write_state
from vedette_rl.storage.state_hash import hash_state
from vedette_services.learner.trainer.learner import build_learning_agent
from vedette_services.run.certificate import Certificate
from vedette_services.run.directory import RunDirectory
from vedette_services.run.journal import (
    Kind,
    StateHashes,
    list_parts,
    make_block,
    read_part,
    saved_block,
)

Run = Callable[..., tuple[int, str]]
STEPS = 120


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trained") / "run"
    config = config_of("dqn", steps=STEPS, capacity=300, keep=100_000)
    KilledRun(root, config, random.Random(0)).train(kills=1)
    return root


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def said_by_report(run: Path) -> str:
    return dict(read_record(run).provenance).get("executed again", "")


def test_a_certificate_names_what_was_equal_and_the_report_quotes_it(
    vedette: Run, run: Path
) -> None:
    assert said_by_report(run) == ""
    status, said = vedette("verify", "run")
    assert status == 0
    assert f"steps 0 to {STEPS} of start" in said
    assert said.endswith("the certificate in run/certificate.json\n")
    found = Certificate.read(run / "certificate.json")
    assert found is not None
    assert found.equal
    assert found.run == RunDirectory(run).identity().run_id
    saved = Checkpoints(run / "checkpoints", keep=1).read(str(STEPS))
    assert saved is not None
    assert found.weights[STEPS] == hash_state(saved.state["agent"]).hex()
    (first, end) = found.rows["actors"]
    assert first == 0
    assert end > 300
    acting = make_agent(run, saved.state["agent"]).model_info().arrays
    assert found.acting[STEPS] == hash_state(acting).hex()
    steps = [int(path.name) for path in Checkpoints(run / "checkpoints", keep=1).list()]
    assert found.files == {f"checkpoints/{step}": "equal" for step in steps}
    assert found.epochs
    assert found.not_covered == ()
    assert found.then["torch"] == found.now["torch"]
    assert "all bits of " in said_by_report(run)
    assert said_by_report(run).endswith("are equal")


def make_agent(run: Path, state: State) -> Agent:
    spaces = spaces_from_json(read_part(list_parts(run / "journal")[-1]).header.spaces)
    agent = build_learning_agent(config_of("dqn"), spaces, 1, torch.device("cpu"))
    agent.set_state(state)
    return agent


def test_a_file_that_was_changed_is_certified_as_a_difference(vedette: Run, run: Path) -> None:
    place = run / "checkpoints" / str(STEPS)
    state, meta = read_state(place)
    next(iter(state["agent"]["online"].values())).view(-1)[0] += 1
    write_state(place, state, meta)
    status, said = vedette("verify", "run")
    assert status == 1
    why = f"checkpoints/{STEPS}: it is not the state that was saved"
    assert why in said
    found = Certificate.read(run / "certificate.json")
    assert found is not None
    assert not found.equal
    assert found.files[f"checkpoints/{STEPS}"] == "it is not the state that was saved"
    assert f"different: {why}" in said_by_report(run)


def test_a_certificate_that_cannot_be_written_costs_no_result(
    vedette: Run, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(certificate: Certificate, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Certificate, "write", refuse)
    status, said = vedette("verify", "run")
    assert status == 2
    assert said.startswith("equal: ")
    assert "run/certificate.json: No space left on device" in said


def test_what_the_journal_lacks_of_the_run_is_said(vedette: Run, run: Path) -> None:
    last = list_parts(run / "journal")[-1]
    header = len(make_block(Kind.HEADER, read_part(last).header.to_json()))
    whole = last.read_bytes()
    last.write_bytes(whole[: header + (len(whole) - header) // 2])
    ends = read_part(last).last_step
    assert 0 < ends < STEPS
    why = f"the journal ends at step {ends} (its file was cut off), and there is a checkpoint of "
    why += f"step {STEPS}\n"
    for command in ("verify", "rerun"):
        status, said = vedette(command, "run")
        assert status == 0
        assert f"steps behind {ends} are not covered: {why}" in said
    assert f"none behind: {why}" in vedette("rerun", "run", "--span")[1]
    assert "not covered" not in vedette("rerun", "run", "--until", ends)[1]


def test_a_difference_is_certified_as_one(vedette: Run, run: Path) -> None:
    """So that no earlier certificate says something else."""
    vedette("verify", "run")
    with list_parts(run / "journal")[-1].open("ab") as part:
        part.write(saved_block(STEPS, StateHashes(bytes(16), bytes(16))))
    status, said = vedette("verify", "run")
    assert status == 1
    assert f"different at step {STEPS} (the agent)" in said
    assert "different at step" in said_by_report(run)


def test_a_certificate_of_another_run_or_of_fewer_steps_is_no_claim(
    vedette: Run, run: Path
) -> None:
    vedette("verify", "run", "--out", "elsewhere.json")
    assert said_by_report(run) == ""
    content = json.loads(Path("elsewhere.json").read_text())
    (run / "certificate.json").write_text(json.dumps({**content, "run": "another"}))
    assert said_by_report(run) == ""
    (run / "certificate.json").write_text(json.dumps({**content, "format": 2}))
    assert said_by_report(run) == ""
    (run / "certificate.json").write_text("{")
    assert said_by_report(run) == ""
    (run / "certificate.json").write_text(json.dumps({**content, "last": 100}))
    (run / "summary.json").write_text(json.dumps({"opt_steps": STEPS}))
    assert said_by_report(run).endswith(f"; it has {STEPS} steps now")
