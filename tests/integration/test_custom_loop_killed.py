"""A loop of its own beside a real learner that is killed: its time, and every row once."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from counting_env import Count
from counting_run import CountingRun
from daemons import Daemons

import vedette

PERIOD_S = 0.005


class Loop:
    """Steps an environment in real time, in a thread of this process."""

    def __init__(self, run: CountingRun) -> None:
        self.env = Count(tally=str(run.tally))
        self.running = True
        self.acts_s: list[float] = []
        self.actor = vedette.Actor(
            str(run.address),
            observation_space=self.env.observation_space,
            action_space=self.env.action_space,
        )
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def _play(self) -> None:
        self.actor.begin(self.env.reset()[0])
        due = time.monotonic()
        while self.running:
            began = time.monotonic()
            action = self.actor.act()
            self.acts_s.append(time.monotonic() - began)
            obs, reward, terminated, truncated, _ = self.env.step(action)
            self.actor.observe(reward, obs, terminated, truncated)
            due += PERIOD_S
            time.sleep(max(0.0, due - time.monotonic()))

    def close(self) -> bool:
        self.running = False
        self._thread.join(20.0)
        return self.actor.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_of_the_learner_neither_hold_the_loop_nor_lose_or_repeat_a_row(
    daemons: Daemons,
) -> None:
    run = CountingRun(daemons)
    loop = Loop(run)
    for _ in range(2):
        run.flows()
        run.learner.kill9()
        played = loop.actor.stats()["env_steps"]
        time.sleep(2.0)
        assert loop.actor.stats()["env_steps"] - played > 0.8 * 2.0 / PERIOD_S
        run.start_learner()
    run.flows()
    assert loop.close(), loop.actor.stats()
    proof, accounting = run.finish()
    usual_s, longest_s = np.quantile(loop.acts_s, [0.99, 1.0])
    print(f"act: 99 % below {1e3 * usual_s:.1f} ms, at most {1e3 * longest_s:.1f} ms")
    print(proof, accounting)
    assert proof.whole
    assert proof.rows > 1500
    # It waits for nothing while the learner is away; a busy machine delays a few, whatever they do.
    assert usual_s < 0.25
    assert accounting["dropped"] == accounting["lost"] == 0
