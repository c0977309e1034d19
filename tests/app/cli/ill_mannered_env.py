"""An environment that does to its process what simulators do."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
import time
from typing import Any

import gymnasium as gym
import numpy as np

print("ill_mannered_env was imported")


def net(observation: gym.Space[Any], actions: int) -> Any:
    """A network, for the import of this module."""
    from torch import nn

    return nn.Linear(observation.shape[0], actions)  # type: ignore[index]  # a box


class Printing(gym.Env[Any, Any]):
    """Prints, and does nothing else to its process."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        os.write(1, b"solver: build of January\n")
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        print("{touches", flush=True)
        return np.zeros(2, np.float32), 1.0, False, self.t == 10, {}


class IllMannered(Printing):
    """Takes signals, goes elsewhere, and leaves a thread, a child and an exit handler that do not
    end."""

    left = False

    def __init__(self, folder: str) -> None:
        os.chdir(folder)
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        if not IllMannered.left:
            IllMannered.left = True
            threading.Thread(target=time.sleep, args=(600,), name="driver").start()
            subprocess.Popen(["sleep", "600"])
            atexit.register(time.sleep, 600)
