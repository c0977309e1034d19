"""C clients train while learner and client are killed: to the target, and by a robot's clock."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from c_programs import ROOT, Built
from daemons import Daemon, Daemons, flows, free_address, status, wait_for

from vedette_services.net.keys import ClientKeys, make_keys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(700)]


@pytest.mark.parametrize("beside", ["nobody", "python"])
def test_cartpole_is_solved_by_c_with_keys_through_kills(
    built: Built, fleet: Daemons, tmp_path: Path, beside: str
) -> None:
    program = built("clients/c/examples/cartpole.c")
    keys = tmp_path / "keys"
    run = tmp_path / "run"
    address = free_address()
    make_keys(keys, ["simulator", "host"])
    host, port = str(address).rsplit(":", 1)

    def start_learner() -> Daemon:
        arguments = ("--env", "CartPole-v1", "--out", run, "--bind", address, "--keys", keys)
        return fleet.start("learner", "learner", *arguments)

    def start_client() -> Daemon:
        words = [program, host, port, "c-1", keys / "hosts" / "simulator"]
        fleet.started.append(Daemon("c-1", fleet, [str(word) for word in words]))
        return fleet.started[-1]

    def opts() -> int:
        return int(status(address, keys=ClientKeys.read(keys)).get("opt_steps", 0))

    learner, client = start_learner(), start_client()
    if beside == "python":
        secured = ("--keys", keys / "hosts" / "host")
        fleet.start("python", "actors", "--learner", address, "--count", 1, *secured)
    wait_for(lambda: opts() >= 400, "a learner that trains", 180.0)
    learner.kill9()
    learner = start_learner()
    wait_for(lambda: opts() >= 600, "the same learner again", 180.0)
    client.kill9()
    client = start_client()
    began = time.monotonic()
    while learner.running and time.monotonic() - began < 400:
        learner.process.poll()
        time.sleep(0.5)
    assert learner.wait(10.0) == 0
    assert client.wait(20.0) == 0, client.log
    summary = json.loads((run / "summary.json").read_text())
    samples = summary["samples"]
    assert summary["exit_reason"] == "target_return"
    assert samples["rejected"] == samples["in_flight"] == 0, samples
    print(summary["env_steps"], summary["eval"], samples)


def test_sac_learns_the_pendulum_of_c(built: Built, fleet: Daemons, tmp_path: Path) -> None:
    run = tmp_path / "run"
    address = free_address()
    host, port = str(address).rsplit(":", 1)
    settings = ("evaluation.episodes=20", "stop.target_return=-200", "stop.max_env_steps=40000")
    setting = ("--agent", "sac", "--env", "Pendulum-v1", "--out", run, "--bind", address)
    learner = fleet.start("learner", "learner", *setting, *settings)
    words = [built("clients/c/examples/pendulum.c"), host, port, "robot-1"]
    robot = Daemon("robot", fleet, [str(word) for word in words])
    fleet.started.append(robot)
    assert learner.wait(600.0) == 0
    assert robot.wait(60.0) == 0, robot.log
    summary = json.loads((run / "summary.json").read_text())
    samples = summary["samples"]
    assert summary["exit_reason"] == "target_return", summary["eval"]
    assert summary["eval"]["best_return_mean"] >= -200
    assert samples["rejected"] == samples["lost"] == samples["in_flight"] == 0, samples
    print(summary["env_steps"], summary["eval"], samples)


MEMORY = {
    "dqn": (
        *("agent.memory=gru", "agent.memory_size=32", "agent.hidden_sizes=[64,64]"),
        *("agent.learning_rate=0.001", "replay.sequence=10", "replay.burn_in=0"),
        *("learner.warmup_period=500", "learner.eval_interval=200"),
    ),
    "appo": (
        *("agent.memory=gru", "agent.memory_size=32", "agent.hidden_sizes=[32]"),
        *("agent.learning_rate=0.003", "agent.entropy_coef=0.01"),
        *("replay.sequence=32", "replay.block=1024"),
    ),
}


@pytest.mark.parametrize("agent", MEMORY)
def test_a_game_that_needs_a_memory_is_solved_by_c(
    built: Built, fleet: Daemons, tmp_path: Path, agent: str
) -> None:
    """The learner plays the evaluations itself, in numpy: without a memory 0.5 is the most."""
    run = tmp_path / "run"
    address = free_address()
    host, port = str(address).rsplit(":", 1)
    game = ("--env", "vedette_rl.testing:RepeatFirst", "env.kwargs.steps=10", "--agent", agent)
    stop = ("stop.target_return=1.0", "stop.max_env_steps=80000")
    place = ("--out", run, "--bind", address)
    learner = fleet.start("learner", "learner", *game, *place, *MEMORY[agent], *stop)
    words = [built("clients/c/examples/repeat_first.c"), host, port, "game-1", 10]
    player = Daemon("game", fleet, [str(word) for word in words])
    fleet.started.append(player)
    assert learner.wait(600.0) == 0
    assert player.wait(60.0) == 0, player.log
    assert "remembers 32 numbers; all settled" in player.log
    summary = json.loads((run / "summary.json").read_text())
    samples = summary["samples"]
    assert summary["exit_reason"] == "target_return", summary["eval"]
    assert samples["rejected"] == samples["lost"] == samples["in_flight"] == 0, samples
    print(summary["env_steps"], summary["opt_steps"], summary["eval"])


@pytest.mark.parametrize(
    ("game", "language", "most_steps"), [("catch", "c", 60_000), ("gridworld", "cpp", 120_000)]
)
def test_a_game_of_declared_spaces_is_solved_and_evaluates_itself(
    built: Built,
    fleet: Daemons,
    tmp_path: Path,
    game: str,
    language: str,
    most_steps: int,
) -> None:
    run = tmp_path / "run"
    address = free_address()
    host, port = str(address).rsplit(":", 1)
    config = ROOT / f"clients/c/examples/{game}.toml"
    limit = f"stop.max_env_steps={most_steps}"
    learner = fleet.start("learner", "learner", config, "--out", run, "--bind", address, limit)
    words = [built(f"clients/c/examples/{game}.{language}"), host, port, "game-1"]
    player = Daemon("game", fleet, [str(word) for word in words])
    fleet.started.append(player)
    assert learner.wait(600.0) == 0
    assert player.wait(60.0) == 0, player.log
    summary = json.loads((run / "summary.json").read_text())
    assert summary["exit_reason"] == "target_return", summary["eval"]
    assert summary["samples"]["rejected"] == summary["samples"]["lost"] == 0, summary["samples"]
    assert summary["eval"]["played_by"] == "manager game-1"
    print(summary["env_steps"], summary["eval"])


def test_a_robots_loop_keeps_its_time_while_its_learner_is_killed_twice(
    built: Built, fleet: Daemons, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    address = free_address()
    hz = 50
    host, port = str(address).rsplit(":", 1)
    settings = ("stop.target_return=0",)

    def start_learner() -> Daemon:
        arguments = ("--env", "Pendulum-v1", "--out", run, "--bind", address, *settings)
        return fleet.start("learner", "learner", *arguments)

    learner = start_learner()
    words = [built("clients/c/examples/pendulum.c"), host, port, "robot-1", str(hz)]
    robot = Daemon("robot", fleet, [str(word) for word in words])
    fleet.started.append(robot)
    for kill in range(2):
        before = flows(address, 300)
        learner.kill9()
        time.sleep(4.0 + 4.0 * kill)  # longer than the client's patience with a silent learner
        learner = start_learner()
        assert flows(address, 300) > before
    assert robot.stop() == 0, robot.log
    assert learner.stop() == 0
    samples = json.loads((run / "summary.json").read_text())["samples"]
    assert samples["produced"] == samples["inserted"], samples
    found = re.search(r"(\d+) periods of .* (\d+) missed; longest act ([0-9.]+) ms", robot.log)
    assert found, robot.log
    periods = int(found[1])
    missed = int(found[2])
    longest_ms = float(found[3])
    assert missed <= 0.1 * periods, "a loaded machine may miss some, a waiting client misses all"
    assert longest_ms < 1000, "the silence after which the client makes new sockets is 3 s"
    print(robot.log)
