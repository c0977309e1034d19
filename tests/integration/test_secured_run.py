"""Whole trainings over the network, to their end: with keys, and with models in 16 bits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zmq
from daemons import Daemons, balances, free_address, status, wait_for

from vedette_protocol import topics
from vedette_protocol.codec import decode_model
from vedette_services.net.keys import ClientKeys, make_keys
from vedette_services.run.finished import FinishedRun

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
    keys = tmp_path / "keys"
    run = daemons.place / "run"
    address = free_address()
    make_keys(keys, ["gpu-2", "lab-7", "fired"])
    learner = daemons.start(
        "learner",
        "learner",
        "--env",
        "CartPole-v1",
        "--agent",
        "dqn",
        "--keys",
        keys,
        "--bind",
        address,
        "--out",
        run,
        *SETTINGS,
    )
    make_keys(tmp_path / "others", ["outsider"])
    outsider = daemons.start(
        "outsider",
        "actors",
        "--learner",
        address,
        "--count",
        1,
        "--keys",
        tmp_path / "others" / "hosts" / "outsider",
    )
    assert outsider.wait(60.0) == 3
    assert "has another key than learner.toml says" in outsider.log
    managers = [
        daemons.start(
            name,
            "actors",
            "--learner",
            address,
            "--id",
            name,
            "--count",
            1,
            "--keys",
            keys / "hosts" / name,
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


@pytest.mark.slow
def test_actors_on_models_in_16_bits_solve_cartpole(daemons: Daemons) -> None:
    run = daemons.place / "run"
    address = free_address()
    with zmq.Context() as context, context.socket(zmq.SUB) as models:
        models.subscribe(topics.ALL)
        models.connect(f"tcp://{address.host}:{address.port + 2}")
        learner = daemons.start(
            "learner",
            "learner",
            "--env",
            "CartPole-v1",
            "--agent",
            "dqn",
            "--out",
            run,
            "--bind",
            address,
            "learner.model_dtype=float16",
        )
        actors = daemons.start("actors", "actors", "--learner", address, "--count", 2)
        assert models.poll(60_000), learner.log
        chunk = decode_model(models.recv_multipart()[1:])
    assert learner.wait(150.0) == 0, learner.log
    assert actors.wait(30.0) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert summary["exit_reason"] == "target_return"
    assert summary["samples"]["lost"] == summary["samples"]["rejected"] == 0
    best = FinishedRun.open(run).load_model(None).model.arrays
    sizes = [array.nbytes // (2 if array.ndim > 1 else 1) for array in best.values()]
    assert chunk.total_bytes == 8 + sum(-(-size // 8) * 8 for size in sizes)
    weight = max(best.values(), key=lambda array: array.size)
    assert not np.array_equal(weight, weight.astype(np.float16))  # the best keeps all digits
