"""Stacks that travel and lie by frames: real daemons, real kills, every byte in the replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from counting_env import played
from counting_run import CountingRun
from daemons import Daemons, balances, inserted, kill_child
from numpy.typing import NDArray

from vedette_rl.replay.export import LiveRows

pytestmark = pytest.mark.timeout(180)
STACK = 4


def numbers_of(stacks: NDArray[Any]) -> NDArray[np.int64]:
    """(uid, t) of every picture ``(rows, STACK, 2)``."""
    return np.ascontiguousarray(stacks).view(np.int64)[..., 0]


def beginning_of(t: NDArray[np.int64]) -> NDArray[np.int64]:
    """When the episode began that was in its step t: they end with multiples of 7 and of 11."""
    return np.maximum(t - t % 7, t - t % 11)


def assert_every_picture_is_where_it_belongs(live: LiveRows) -> NDArray[np.int64]:
    """(uid, t) of every row."""
    obs, after = numbers_of(live.column("obs")), numbers_of(live.column("next_obs"))
    uid = obs[:, -1, 0]
    t = obs[:, -1, 1]
    begun = beginning_of(t)
    for i in range(STACK):
        back = STACK - 1 - i
        np.testing.assert_array_equal(obs[:, i, 0], uid)
        np.testing.assert_array_equal(after[:, i, 0], uid)
        np.testing.assert_array_equal(obs[:, i, 1], np.maximum(t - back, begun))
        np.testing.assert_array_equal(after[:, i, 1], np.maximum(t + 1 - back, begun))
    np.testing.assert_array_equal(live.column("reward"), (t + 1) % 3)
    np.testing.assert_array_equal(live.column("terminated"), (t + 1) % 7 == 0)
    return obs[:, -1]


@pytest.mark.slow
def test_killed_learners_cost_no_sample_and_no_frame(daemons: Daemons) -> None:
    run = CountingRun(daemons, f"env.frame_stack={STACK}", env="counting_env:CountPictures-v0")
    for name in ("a", "b"):
        run.start_manager(name)
    run.flows()
    kill_child(run.learner, "gateway")
    run.flows()
    before = inserted(run.address)
    run.learner.kill9()
    run.start_learner()
    assert run.flows() > before
    for manager in run.managers:
        assert manager.stop() == 0
    assert run.learner.stop() == 0
    accounting = run.summary["samples"]
    assert balances(accounting)
    with LiveRows(run.run / "replay") as live:
        assert live.manifest.shared is not None
        assert len(live) == accounting["inserted"]
        rows = assert_every_picture_is_where_it_belongs(live)
    missing = 0
    for uid, (steps, _) in played(run.tally).items():
        seen = np.unique(rows[rows[:, 0] == uid, 1])
        assert len(seen) == (rows[:, 0] == uid).sum()
        if len(seen) or steps > 1:  # else it was probed: to see what a step gives
            missing += steps - len(seen)
    # A learner that is slow to start makes managers drop at their end what it did not take.
    assert missing == accounting["dropped"]
    assert accounting["lost"] == accounting["in_flight"] == 0
