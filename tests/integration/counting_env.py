"""An environment that numbers its steps, so that an export of the replay proves itself."""

from __future__ import annotations

import mmap
import os
import struct
import time
import uuid
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

UIDS = 2**22
STEPS = 2**23
TALLY = struct.Struct("<QQ")
"""Steps played, and the process that played them."""


class Count(gym.Env[NDArray[Any], np.int64]):
    """The observation is (uid / 2**22, t / 2**23), both exact in float32.

    `uid` is this environment's own number, `t` counts its steps over all episodes: of each uid the
    replay must hold the transitions 0 -> 1, 1 -> 2, ... once each.

    Args:
        sleep_s: how long a step takes.
        tally: a folder. The steps played are kept there in a mapped file a uid, which a `kill -9`
            leaves as it is: how many transitions there were, whatever became of them.
        breaks_at: the step that raises an exception; 0: none.
    """

    observation_space: gym.Space[Any] = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, sleep_s: float = 0.0, tally: str = "", breaks_at: int = 0) -> None:
        self._breaks_at = breaks_at
        self._uid = uuid.uuid4().int % UIDS
        self._t = 0
        self._sleep_s = sleep_s
        self._tally_in = tally
        self._tally: mmap.mmap | bytearray | None = None if tally else bytearray(TALLY.size)

    def _observation(self) -> NDArray[Any]:
        return np.array([self._uid / UIDS, self._t / STEPS], np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        if self._sleep_s:
            time.sleep(self._sleep_s)
        self._t += 1
        self._count()
        if self._t == self._breaks_at:
            raise ValueError("sensor lost")
        return self._observation(), float(self._t % 3), self._t % 7 == 0, self._t % 11 == 0, {}

    def _count(self) -> None:
        if self._tally is None:
            self._tally = _mapped(Path(self._tally_in) / str(self._uid))
        TALLY.pack_into(self._tally, 0, self._t, os.getpid())


class CountPictures(Count):
    """The same, as pictures: the bytes of uid and t, a row each. Made to be stacked."""

    observation_space = gym.spaces.Box(0, 255, (2, 8), np.uint8)

    def _observation(self) -> NDArray[Any]:
        return np.array([[self._uid], [self._t]], np.int64).view(np.uint8)


def _mapped(path: Path) -> mmap.mmap:
    with path.open("x+b") as file:
        file.truncate(TALLY.size)
        return mmap.mmap(file.fileno(), TALLY.size)


def played(tally: Path) -> dict[int, tuple[int, int]]:
    """Steps played and the process, by uid."""
    found = {int(file.name): file.read_bytes() for file in tally.iterdir()}
    # A file that is made just now is empty
    return {uid: TALLY.unpack(data) for uid, data in found.items() if data}


gym.register("Count-v0", entry_point="counting_env:Count")
gym.register("CountPictures-v0", entry_point="counting_env:CountPictures")
