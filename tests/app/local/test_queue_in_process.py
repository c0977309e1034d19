"""A queue in one process: nothing waits for a checkpoint, and every row is learned from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configurations import configured  # of tests/support
from queue_counter import NAME  # of tests/integration
from small_runs import trained  # beside this file

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
