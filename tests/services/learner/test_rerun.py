"""A run's learning is executed again, bit by bit, whatever was killed meanwhile."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from killed_runs import KilledRun, config_of  # of tests/support

from vedette_services.config import RunConfig
from vedette_services.learner.rerun import Rerun

OVERWRITTEN = {"capacity": 200, "keep": 100_000}
CASES = {
    "dqn": config_of("dqn"),
    "sac": config_of("sac", **OVERWRITTEN),
    "td3": config_of("td3"),
    "by priority": config_of("dqn", prioritized=True, **OVERWRITTEN),
    "two sources": config_of("dqn", sources={"demos": {"data": "x.npz", "share": 0.3}}),
    "two sources by priority": config_of(
        "dqn", prioritized=True, sources={"demos": {"data": "x.npz", "share": 0.3}}
    ),
}


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
def test_a_killed_run_is_executed_again_bit_by_bit(config: RunConfig, tmp_path: Path) -> None:
    run = KilledRun(tmp_path, config, random.Random(1))
    run.train(kills=3)
    with Rerun.open(tmp_path) as again:
        assert (again.span.begin, again.span.end) == (0, config.stop.max_opts)
        result = again.execute(again.span.cut(None, None))
    assert result.equal, list(result.lines())
    assert not result.changes
    assert result.states > 0
    assert result.scalars == config.stop.max_opts // 10
