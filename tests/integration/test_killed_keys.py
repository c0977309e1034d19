"""Rows say truly which of them follow one another, whatever is killed and whatever fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from counting_run import ENVS
from daemons import Daemons, wait_for
from loop_run import LoopRun
from numpy.typing import NDArray
from proof import played, steps_of

from vedette_rl.replay.export import LiveRows

BREAKS_AT = 150
"""Each environment fails at this step of its own, and another one is made in its place."""


@pytest.mark.timeout(240)
def test_keys_are_right_whatever_is_killed_and_whatever_fails(daemons: Daemons) -> None:
    run = LoopRun(daemons, f"env.kwargs.breaks_at={BREAKS_AT}", has_keys=True)
    manager = run.start_manager("a", count=2)
    run.flows()
    victim = min(manager.children("actor"))
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: {*manager.children("actor")} - {victim}, "another actor")
    run.flows()
    run.learner.kill9()
    run.start_learner()
    run.flows()
    run.managers.remove(manager)
    manager.kill9()
    run.start_manager("a", count=2)
    run.flows(2 * 2 * ENVS * BREAKS_AT)
    run.finish()
    with LiveRows(run.run / "replay") as live:
        columns = {name: live.column(name) for name in live.names}
    processes, lost = assert_keys_are_right(columns)
    assert lost, "some environment failed"
    pids = {pid for steps, pid in played(run.tally).values() if steps > 1}
    assert len(processes) >= 5, "two actors, one again, and two of the manager's next start"
    assert len(processes) <= len(pids)
    assert set(columns["epoch"].tolist()) == {1, 2}


def assert_keys_are_right(columns: Mapping[str, NDArray[Any]]) -> tuple[set[int], int]:
    """Each environment of an actor has its steps in order and none twice; and no two processes
    share a `t`. The numbers at which they began to count, and the environments that failed.

    The environment's own observation says which environment it is, and which of its steps.
    """
    uid, own, sound = steps_of(columns)
    assert sound.all()
    t = columns["t"]
    began = (own % 7 == 0) | (own % 11 == 0)
    np.testing.assert_array_equal(columns["begins"], began, "episodes begin where they did")
    assert (columns["n_steps"] == 1).all()
    streams = np.stack([columns["manager"], columns["actor"], columns["env"], t >> 32], 1)
    lost = 0
    for stream in np.unique(streams, axis=0):
        mine = np.flatnonzero((streams == stream).all(1))
        mine = mine[np.argsort(t[mine])]
        assert (np.diff(t[mine]) > 0).all(), "no step twice"
        for before, after in pairwise(mine):
            steps = t[after] - t[before]
            if uid[after] == uid[before]:
                assert steps == own[after] - own[before], "as many as the environment counted"
            else:  # the step that failed has a number and no row
                assert columns["begins"][after]
                assert steps >= 2
                lost += 1
    counts = {int(count) for count in t >> 32}
    for count in counts:
        of_one = streams[streams[:, 3] == count]
        assert len(np.unique(of_one[:, :2], axis=0)) == 1, "two processes share a t"
    for number in np.unique(uid):
        assert len(np.unique(streams[uid == number], axis=0)) == 1, "an environment is of one"
    return counts, lost
