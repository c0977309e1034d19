"""The scripted learner finds what a client does wrong, and nothing wrong with one that is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from vedette.cli.app import app
from vedette.cli.conform import load_conformance_config
from vedette.conformance import SCENES, Script
from vedette.wire_rules import RULES, ActionChecker, Findings, Watcher
from vedette_protocol.codec import encode
from vedette_protocol.messages import Ack, Batch, Report, Run
from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.make import environment_spaces

CLIENT = str(Path(__file__).with_name("wire_client.py"))
FAULTS = [
    ("no credit", "deliveries", {"credit", "credit zero"}),
    ("no report", "kills", {"report first", "ack first", "credit"}),
    ("eager", "kills", {"ack first"}),
    ("gap", "deliveries", {"numbers"}),
    ("base", "deliveries", {"base"}),
    ("nan", "deliveries", {"rows"}),
    ("other rows", "deliveries", {"same batch"}),
    ("rare reports", "deliveries", {"reports"}),
    ("limit", "deliveries", {"accounting"}),
    ("impatient", "deliveries", {"lost acks"}),
    ("never again", "deliveries", {"stalled"}),
    ("older ack", "deliveries", {"older ack"}),
    ("foreign ack", "deliveries", {"foreign ack"}),
    ("wrong ack", "deliveries", {"wrong ack"}),
    ("forgets", "deliveries", {"new epoch"}),
    ("always left", "deliveries", {"acting"}),
    ("old model", "deliveries", {"newest model"}),
    ("any model", "deliveries", {"wrong models"}),
    ("unknown keys", "deliveries", {"unknown keys"}),
    ("end", "deliveries", {"end"}),
    ("new incarnation", "kills", {"learner killed"}),
    ("silence", "kills", {"silence"}),
    ("stop", "kills", {"stop"}),
    ("earlier stop", "kills", {"earlier stop"}),
    ("same incarnation", "kills", {"another run"}),
    ("refusal", "refusal", {"refusal"}),
    ("mute", "refusal", {"join"}),
    ("in plain", "keys", {"keys"}),
]


def script(fault: str, start_s: float = 30.0) -> Script:
    config = load_conformance_config("CartPole-v1", None, [])
    return Script(config, [sys.executable, CLIENT, "{learner}", "{keys}", fault], start_s)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_client_that_is_right_breaks_no_rule_and_every_rule_is_seen() -> None:
    findings = script("").play()
    assert {rule: v for rule, v in findings.verdicts.items() if v[0] != "kept"} == {}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("fault", "scene", "rules"), FAULTS, ids=[name for name, *_ in FAULTS])
def test_a_client_that_is_wrong_is_found(fault: str, scene: str, rules: set[str]) -> None:
    findings = script(fault, start_s=5.0 if fault == "mute" else 30.0).play([scene])
    assert rules & {*findings.broken}, "\n".join(findings.lines())


def test_every_rule_has_a_client_that_breaks_it() -> None:
    found = set().union(*(rules for *_, rules in FAULTS))
    assert {*RULES} - found == {"settled", "over"}  # the first by a watcher, below
    assert {scene for _, scene, _ in FAULTS} | {"over"} == {*SCENES}


RUN = Run(
    "r",
    1,
    7,
    Schema.from_dtype(np.dtype([("reward", "<f4")])),
    Schema.from_dtype(np.dtype([("w", "<f4")])),
    {},
    {},
    {},
    0,
    4,
    4,
)


def watched(*events: object, findings: Findings | None = None) -> Findings:
    """What a watcher finds of messages, two seconds apart."""
    watcher = Watcher(findings or Findings())
    watcher.run = RUN
    watcher.on_subscription("control", b"\1m/m/")
    for number, event in enumerate(events):
        if isinstance(event, Ack):
            watcher.on_ack(event, 2.0 * number)
        else:
            watcher.on_up([bytes(frame) for frame in encode(event)], 2.0 * number)  # type: ignore[arg-type]
    return watcher.findings


def ack(contiguous: int, limit: int) -> Ack:
    return Ack("r", 1, 7, "m", 9, contiguous, 0, 0, 0, limit, 0, 0)


def report(**fields: int) -> Report:
    given = dict.fromkeys(
        ("produced", "dropped", "window_batches", "window_rows", "window_bytes", "sequenced"), 0
    )
    return Report("m", 9, "here", "running", "r", **{**given, **fields})


def batch(seq: int, reward: float = 1.0, base: int = 0) -> Batch:
    payload = RUN.schema.pack({"reward": np.full(2, reward, np.float32)}, 2)
    return Batch("r", "m", 9, seq, 0, 1, 1, RUN.schema.hash, 2, payload, base, 2)


def test_the_watcher_keeps_what_is_right() -> None:
    found = watched(report(), ack(0, 2), batch(0), batch(1), ack(1, 2), batch(1), report(limit=2))
    assert found.broken == []


@pytest.mark.parametrize(
    ("rule", "events"),
    [
        ("settled", [report(), ack(0, 1), batch(0), ack(1, 1), batch(0)]),
        ("same batch", [report(), ack(0, 1), batch(0), batch(0, 2.0)]),
        ("credit", [report(), ack(0, 1), batch(0), batch(1)]),
        ("numbers", [report(), ack(0, 9), batch(1)]),
        ("base", [report(), ack(0, 9), batch(0), batch(1, base=1)]),
        ("rows", [report(), ack(0, 9), batch(0, np.nan)]),
        ("report first", [ack(0, 9), batch(0)]),
        ("ack first", [report(), batch(0)]),
        ("accounting", [report(), report(limit=1)]),
    ],
)
def test_the_watcher_finds_a_message_that_breaks_a_rule(rule: str, events: list[object]) -> None:
    assert rule in watched(*events).broken


def remembering() -> tuple[ActionChecker, dict[str, NDArray[Any]]]:
    """A checker that knows a model with memory, and rows of two environments that are right."""
    config = load_conformance_config("CartPole-v1", None, ["agent.memory=gru"])
    spaces = environment_spaces(config.env)
    kind = agent_kind("dqn")
    agent = kind.build_agent(config.agent, spaces, device="cpu", seed=0)
    policy = kind.build_policy(config.agent, spaces, ranks=np.zeros(2), seed=0)
    policy.sync_model(agent.model_info())
    checker = ActionChecker(config, spaces)
    checker.on_model(1, 1, agent.model_info().arrays)
    rng = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {}
    for t in range(6):
        begins = np.array([t in (0, 4), t == 0])
        obs = rng.normal(size=(2, 4)).astype(np.float32)
        action = policy.act({"obs": obs}, explore=False, begins=begins)
        row = {"obs": obs, "action": action, **policy.acted_columns()}
        row |= {"env": np.arange(2, dtype=np.uint32), "t": np.full(2, 7 + t), "begins": begins}
        for name, column in row.items():
            rows.setdefault(name, []).append(column.copy())
    return checker, {name: np.concatenate(columns) for name, columns in rows.items()}


def test_the_checker_acts_with_what_a_row_says_was_remembered() -> None:
    checker, rows = remembering()
    assert checker.find_wrong((1, 1), rows) == ""
    forgetful = {**rows, "memory": np.zeros_like(rows["memory"])}
    assert "remembers" in (checker.find_wrong((1, 1), forgetful) or "")


def test_the_checker_finds_an_episode_that_begins_with_a_memory() -> None:
    checker, rows = remembering()
    memory = rows["memory"].copy()
    memory[8] = memory[7]
    found = checker.find_wrong((1, 1), {**rows, "memory": memory})
    assert found is not None
    assert found.startswith(("row 8 begins an episode, and remembers", "action"))


def test_the_checker_finds_a_memory_after_the_observation_in_the_place_of_that_before_it() -> None:
    checker, rows = remembering()
    shifted = np.concatenate([rows["memory"][2:], rows["memory"][-2:]])
    assert checker.find_wrong((1, 1), {**rows, "memory": shifted})


def test_a_rule_that_was_broken_once_stays_broken() -> None:
    findings = Findings()
    findings.broke("credit", "batch 7")
    findings.note("credit", True)
    assert "broken    credit: sends no batch at or above" in "\n".join(findings.lines())
    assert findings.broken == ["credit"]


@pytest.mark.slow
def test_the_command_prints_its_findings_and_its_status_says_if_a_rule_is_broken() -> None:
    nothing = [sys.executable, "-c", "pass"]
    done = CliRunner().invoke(
        app, ["conform", "--json", "--scene", "over", "--start", "9", *nothing]
    )
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert found["over"] == {
        "verdict": "broken",
        "came": "no subscription, and it ended with status 0",
    }
    assert found["credit"]["verdict"] == "not seen"
    done = CliRunner().invoke(app, ["conform", "--scene", "refusal", *nothing])
    assert done.exit_code == 1
    assert "broken    join: subscribes" in done.stdout
    assert "came: no subscription; no report of the run, and it ended with status 0" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel kills a parent's children on Linux")
def test_a_client_does_not_outlive_the_command_that_is_killed() -> None:
    words = ["-m", "vedette.cli", "conform", "--scene", "over", "--start", "60"]
    client = [
        sys.executable,
        "-c",
        "import sys, time; print('here', file=sys.stderr); time.sleep(60)",
    ]
    command = subprocess.Popen([sys.executable, *words, *client], stderr=subprocess.PIPE)
    assert command.stderr is not None
    assert any(b"here" in line for line in command.stderr)
    command.kill()
    command.communicate(timeout=20)  # until the client has ended, too: it writes to the pipe
