"""Environments that go wrong in each way that a newcomer's may, and names that are no use."""

import gymnasium as gym
import numpy as np


class Sound(gym.Env):  # type: ignore[type-arg]  # a user's own has no types either
    observation_space = gym.spaces.Box(0.0, 1.0, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):  # type: ignore[no-untyped-def]
        return np.zeros(2, np.float32), 0.0, False, False, {}


class NoDisplay(Sound):
    def __init__(self) -> None:
        raise RuntimeError("no display")


class NoLicense(Sound):
    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        raise ValueError("no license")


class WrongShape(Sound):
    def step(self, action):  # type: ignore[no-untyped-def]
        return np.zeros(3, np.float32), 0.0, False, False, {}


class OldStep(Sound):
    def step(self, action):  # type: ignore[no-untyped-def]
        return np.zeros(2, np.float32), 0.0, False, {}


class ManyActions(Sound):
    action_space = gym.spaces.MultiBinary(2)


class Words(Sound):
    observation_space = gym.spaces.Text(5)


class Quits(Sound):
    steps = 0  # of all that are made

    def __init__(self, after: int = 0) -> None:
        self.after = after

    def step(self, action):  # type: ignore[no-untyped-def]
        Quits.steps += 1
        if Quits.steps > self.after:
            raise SystemExit
        return super().step(action)


class NeedsOptions(Sound):
    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        return np.full(2, options["map"], np.float32), {}


IDS = {
    f"Broken{made.__name__}-v0": made
    for made in (NoDisplay, NoLicense, WrongShape, OldStep, ManyActions, Words, NeedsOptions)
}
for _id, _made in IDS.items():
    if _id not in gym.registry:
        gym.register(_id, _made)
