"""A program whose loop steps a counting environment, with an outbox: it plays until it is killed.

``python outbox_loop.py ADDRESS TALLY OUTBOX``; SIGTERM ends it well.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

from counting_env import Count

import vedette

ENDED = False


def end(number: int, frame: FrameType | None) -> None:
    """Leave the loop at its next step."""
    global ENDED
    ENDED = True


def main() -> None:
    """Play."""
    signal.signal(signal.SIGTERM, end)
    print("it can be stopped", flush=True)  # `CountingRun.stop` waits for a line
    address, tally, outbox = sys.argv[1:]
    env = Count(tally=tally, sleep_s=0.001)
    actor = vedette.Actor(
        address,
        outbox=Path(outbox),
        observation_space=env.observation_space,
        action_space=env.action_space,
    )
    actor.begin(env.reset()[0])
    while not ENDED:
        obs, reward, terminated, truncated, _ = env.step(actor.act())
        actor.observe(reward, obs, terminated, truncated)
        if terminated or truncated:
            actor.begin(env.reset()[0])
    actor.close()


if __name__ == "__main__":
    main()
