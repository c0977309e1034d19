"""The first step that has something is found, and traced to who made its rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killed_runs import POOL, KilledRun, config_of  # of tests/support

from vedette_rl.envs.spaces import Spaces
from vedette_rl.testing.inputs import sampled_transitions
from vedette_services.errors import UsageError
from vedette_services.learner.bisect import Condition, FoundStep, StepSearch
from vedette_services.learner.rerun import Rerun

POISONED = slice(500, 520)
"""The rows of the pool, and so of the replay, that one actor has spoilt."""
ACTOR = 5


def poisoned(reward: float) -> Any:
    def rows(spaces: Spaces, count: int, seed: int) -> dict[str, Any]:
        columns: dict[str, Any] = {**sampled_transitions(spaces, count, seed)}
        columns["actor"] = np.zeros(count, np.int32)
        columns["manager"] = np.zeros(count, np.int32)
        columns["version"] = np.zeros(count, np.int64)
        columns["reward"][POISONED] = reward
        columns["actor"][POISONED] = ACTOR
        return columns

    return rows


def search(root: Path, text: str) -> FoundStep | None:
    with Rerun.open(root) as again:
        found = StepSearch(Condition.parse(text), "run")
        result = again.execute(again.span.cut(None, None), found)
    assert result.difference is None
    return found.found


def test_a_search_ends_at_the_step_that_is_found_also_before_a_kill(tmp_path: Path) -> None:
    config = config_of("dqn", prioritized=True)
    for seed in range(20):  # a kill behind the first checkpoint, which makes two segments
        root = tmp_path / f"run-{seed}"
        KilledRun(root, config, random.Random(seed), poisoned(1.0)).train(kills=5)
        with Rerun.open(root) as again:
            if len(again.span.cut(None, None)) > 1:
                break
    else:
        pytest.fail("no run was killed behind its first checkpoint")
    found = search(root, "loss >= 0")
    assert found is not None
    assert found.step == 1


@pytest.mark.parametrize(
    ("reward", "text"), [(np.nan, "nan"), (1e12, "loss > 1e9"), (-1e12, "loss >= 1e9")]
)
@pytest.mark.parametrize("sources", [{}, {"demos": {"data": "x.npz", "share": 0.3}}])
def test_a_row_that_one_actor_has_spoilt_is_traced_to_it(
    reward: float, text: str, sources: dict[str, Any], tmp_path: Path
) -> None:
    config = config_of("dqn", prioritized=True, sources=sources)
    KilledRun(tmp_path / "run", config, random.Random(3), poisoned(reward)).train(kills=1)
    found = search(tmp_path / "run", text)
    assert found is not None
    row = found.worst(1)[0]
    assert row.number % (POOL - config.actors.n_buffer) in range(500, 520), "rows repeat"
    assert (row.source, row.actor, row.version) == ("actors", ACTOR, 0)
    assert row.age == found.step
    assert row.manager == "number 0"
    found.write(tmp_path / "batch.npz")
    with np.load(tmp_path / "batch.npz") as batch:
        at = int(np.flatnonzero(batch["indices"] == row.number)[0])
        np.testing.assert_equal(batch["reward"][at], np.float32(reward))
        assert len(batch["td_errors"]) == len(batch["weights"]) == len(batch["obs"]) == 16


def test_a_search_that_finds_nothing_changes_nothing(tmp_path: Path) -> None:
    KilledRun(tmp_path / "run", config_of("td3"), random.Random(3)).train(kills=1)
    with Rerun.open(tmp_path / "run") as again:
        found = StepSearch(Condition.parse("nan"), "run")
        result = again.execute(again.span.cut(None, None), found)
    assert found.found is None
    assert result.equal


def test_a_scalar_that_is_not_recorded_is_refused_with_those_that_are(tmp_path: Path) -> None:
    KilledRun(tmp_path / "run", config_of("dqn"), random.Random(3)).train(kills=0)
    with pytest.raises(UsageError, match=r"--bisect lose > 3: the agent records no lose; .*loss"):
        search(tmp_path / "run", "lose > 3")


@pytest.mark.parametrize("text", ["", "loss", "loss > x", "loss ! 3", "nan > "])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write nan, or a scalar with a limit"):
        Condition.parse(text)
