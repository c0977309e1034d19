"""A robot's loop at 50 Hz, with physics of its own: it keeps its period whatever the learner does.

::

    vedette learner --env Pendulum-v1 --out runs/robot
    python robot.py 127.0.0.1
"""

import argparse
import math
import os
import sys
import time

import gymnasium as gym
import numpy as np

import vedette

PERIOD_S = 0.02
EPISODE_STEPS = 200
OBSERVATION = gym.spaces.Box(np.float32([-1, -1, -8]), np.float32([1, 1, 8]))
ACTION = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)


class Pendulum:
    """A motor that swings a rod up, in place of a real one."""

    def reset(self):
        self.angle = np.random.uniform(-math.pi, math.pi)
        self.speed = np.random.uniform(-1, 1)
        self.steps = 0
        return self.sensors()

    def sensors(self):
        return np.float32([math.cos(self.angle), math.sin(self.angle), self.speed])

    def step(self, torque):
        off = (self.angle + math.pi) % (2 * math.pi) - math.pi
        reward = -(off**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed += (15.0 * math.sin(self.angle) + 3.0 * torque) * 0.05
        self.speed = min(8.0, max(-8.0, self.speed))
        self.angle += self.speed * 0.05
        self.steps += 1
        return self.sensors(), reward, self.steps >= EPISODE_STEPS


def control(learner, seconds, keys=None):
    """Plays until the run is over, or for `seconds`; says how well it kept its time."""
    robot = Pendulum()
    steps = 0
    missed = 0
    longest_s = 0.0
    with vedette.Actor(
        learner,
        keys=keys,
        on_full="drop_oldest",  # never wait: the robot would stand still
        observation_space=OBSERVATION,
        action_space=ACTION,
    ) as actor:
        actor.begin(robot.reset())
        due = began = time.perf_counter()
        while actor.running and due - began < seconds:
            now = time.perf_counter()
            action = actor.act()
            longest_s = max(longest_s, time.perf_counter() - now)
            sensors, reward, truncated = robot.step(float(action[0]))
            actor.observe(reward, sensors, truncated=truncated)
            if truncated:
                actor.begin(robot.reset())
            steps = steps + 1
            due = due + PERIOD_S
            left_s = due - time.perf_counter()
            if left_s > 0:
                time.sleep(left_s)
            else:
                missed = missed + 1
                due = time.perf_counter()
        dropped = actor.stats()["dropped"]
    print(
        f"{steps} steps, {missed} periods missed, longest act {1e3 * longest_s:.1f} ms, "
        f"{dropped:.0f} samples dropped"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "learner", nargs="?", default=os.environ.get("VEDETTE_LEARNER", "127.0.0.1")
    )
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--keys")
    given = parser.parse_args()
    try:
        control(given.learner, given.seconds, given.keys)
    except (vedette.RunOverError, vedette.RefusedError) as error:
        sys.exit(f"robot: {error}")
