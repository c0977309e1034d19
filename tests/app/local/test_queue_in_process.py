"""A queue in one process: nothing waits for a checkpoint, and every row is learned from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configurations import configured  # of tests/support
from queue_counter import NAME  # of tests/integration
from small_runs import trained  # beside this file

from vedette_rl.agents.appo.recurrent import RecurrentAppoAgent
from vedette_rl.core import Columns
from vedette_rl.replay.queue import QueueReplay
from vedette_services.config import RunConfig


def run_of(agent: str, *settings: str, **stop: Any) -> RunConfig:
    learner = {"eval_interval": 0, "recorders": []}
    table = {"learner": learner, "stop": stop}
    return configured("preset=none", *settings, env="CartPole-v1", agent=agent, table=table)


def test_every_row_is_learned_from_as_often_as_configured(tmp_path: Path) -> None:
    config = run_of(NAME, "replay.capacity=300", "actors.envs_per_actor=4", max_env_steps=3000)
    run, summary = trained(config, tmp_path / "run")
    replay = run.replay
    assert isinstance(replay, QueueReplay)
    _, times = np.unique(run.agent.get_state()["rows"], axis=0, return_counts=True)
    assert set(times.tolist()) == {2}
    assert len(times) == replay.counts.trained
    inserted = summary["samples"]["inserted"]
    assert inserted == replay.counts.trained + replay.rows_in_block + replay.waiting
    assert replay.rows_in_block + replay.waiting < config.replay.block, "no whole block was left"
    assert summary["exit_reason"] == "max_env_steps"
    assert summary["replay"]["stale"] == 0


def test_appo_learns_cartpole_in_one_process(tmp_path: Path) -> None:
    run, summary = trained(run_of("appo", max_env_steps=16_000), tmp_path / "run")
    returns = summary["rollout"]["return_mean"]
    assert returns > 45, "a random policy's is 22"
    assert run.agent.opt_steps >= 200


def test_strict_blocks_are_of_one_model_and_nothing_is_played_in_vain(tmp_path: Path) -> None:
    config = run_of("appo", "replay.strict=true", "actors.count=2", max_env_steps=6 * 2048)
    lags = []
    with pytest.MonkeyPatch.context() as patched:
        copy_block = QueueReplay._copy_block

        def noting(replay: QueueReplay, columns: Columns) -> None:
            copy_block(replay, columns)
            lags.append(set(replay.lags.tolist()))

        patched.setattr(QueueReplay, "_copy_block", noting)
        run, summary = trained(config, tmp_path / "run")
    assert lags == [{0.0}] * 6
    assert summary["replay"]["stale"] == 0
    assert run.agent.opt_steps == 6 * 32
    assert summary["lag"]["sample_max"] == 0.0


def test_what_actors_remember_is_what_the_learner_goes_through(tmp_path: Path) -> None:
    """Of strict blocks mu is beta: so the memory at runs' first rows, where episodes begin, and the
    core in numpy and in torch are the same, over episodes that end within runs and go on in the
    next."""
    config = run_of(
        "appo",
        *("replay.strict=true", "agent.memory=gru", "agent.memory_size=16"),
        *("replay.sequence=16", "replay.block=256", "agent.batch_size=64"),
        *("agent.rho_max=2", "agent.learning_rate=0.003", "actors.count=2"),
        max_env_steps=8 * 256,
    )
    first: list[Mapping[str, float]] = []
    with pytest.MonkeyPatch.context() as patched:
        opt = RecurrentAppoAgent.opt

        def noting(agent: RecurrentAppoAgent, batch: Any, weights: Any = None, **_: Any) -> Any:
            result = opt(agent, batch, weights, record=True)
            if batch.place.begins_block:
                first.append(dict(result.record))
                begun = batch["begins"][:, 0]
                assert not batch["memory"][begun].any()
                assert agent.opt_steps == 1 or batch["memory"][~begun].abs().max() > 0.01
            return result

        patched.setattr(RecurrentAppoAgent, "opt", noting)
        trained(config, tmp_path / "run")
    assert len(first) == 8
    for record in first:
        assert record["weight_mean"] == pytest.approx(1.0, abs=1e-4)
        assert record["kl"] == pytest.approx(0.0, abs=1e-6)
