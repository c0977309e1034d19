"""A whole training with keys, to its end: all encrypted, and the accounting balances."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from daemons import Daemons, balances, free_address, status, wait_for

from vedette_services.net.keys import ClientKeys, make_keys

pytestmark = pytest.mark.timeout(180)

SETTINGS = (
    "agent.hidden_sizes=[16]",
    "learner.warmup_period=300",
    "stop.max_opts=400",
    "stop.target_return=none",
    "learner.eval_interval=200",
    "evaluation.episodes=2",
    "actors.envs_per_actor=2",
    "actors.n_buffer=20",
    "replay.capacity=20000",
)


def test_a_training_with_keys_goes_to_its_end(daemons: Daemons, tmp_path: Path) -> None:
    keys, run, address = tmp_path / "keys", daemons.place / "run", free_address()
    make_keys(keys, ["gpu-2", "lab-7", "fired"])
    learner = daemons.start(
        *("learner", "learner", "--env", "CartPole-v1", "--agent", "dqn", "--keys", keys),
        *("--bind", address, "--out", run, *SETTINGS),
    )
    make_keys(tmp_path / "others", ["outsider"])
    outsider = daemons.start(
        *("outsider", "actors", "--learner", address, "--count", 1),
        *("--keys", tmp_path / "others" / "hosts" / "outsider"),
    )
    assert outsider.wait(60.0) == 3
    assert "has another key than learner.toml says" in outsider.log
    managers = [
        daemons.start(
            *(name, "actors", "--learner", address, "--id", name, "--count", 1),
            *("--keys", keys / "hosts" / name),
        )
        for name in ("gpu-2", "lab-7")
    ]
    client = ClientKeys.read(keys)
    wait_for(lambda: status(address, keys=client).get("opt_steps", 0) > 0, "optimization step")
    assert learner.wait(90.0) == 0
    assert [manager.wait(30.0) for manager in managers] == [0, 0]
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["exit_reason"], summary["opt_steps"]) == ("max_opts", 400)
    assert balances(summary["samples"]), summary["samples"]
    assert summary["samples"]["rejected"] == summary["samples"]["lost"] == 0
    assert {m["id"] for m in summary["managers"]} == {"gpu-2", "lab-7"}
    assert summary["eval"]["episodes"] == 2
    assert "for listed keys" in learner.log
