"""The statistics that an actor reports."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

ActorState = Literal[
    "starting",
    "waiting for a model",
    "waiting for room",
    "waiting for the next model",
    "playing",
    "making an environment again",
    "ended",
]


STATS_MAX_BYTES = 4096


_EPISODES_KEPT = 100


_RETURN_MAX = float(np.finfo(np.float32).max)  # as of a reward; their mean is finite, too


@dataclass(frozen=True, slots=True)
class ActorStats:
    """One actor process, since it started.

    Args:
        env_steps: transitions seen, over all its environments.
        return_mean: the mean return of the last 100 episodes, undiscounted; None before the first
            ended.
        length_mean: the mean length of these episodes, in steps.
        version: the version of the model it acts on; -1 before the first.
        error: a problem in spite of which it continues; "" if there is none.
        failures: of its environments, which were made again.
        returns: the episodes whose returns are in `return_sum`: those with a finite one.
        return_sum: the sum of their returns, undiscounted.
    """

    state: ActorState = "starting"
    env_steps: int = 0
    episodes: int = 0
    return_mean: float | None = None
    length_mean: float | None = None
    version: int = -1
    error: str = ""
    failures: int = 0
    returns: int = 0
    return_sum: float = 0.0

    @property
    def waits_for_manager(self) -> bool:
        """Return whether it stands still for a reason that is not its own."""
        return self.state not in ("playing", "making an environment again")

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ActorStats:
        return cls(**json.loads(data))


class RecentEpisodes:
    """Returns and lengths of the last 100 episodes; count and sum of all.

    A return that is not finite is left out: the learner would refuse every report with that mean.
    """

    def __init__(self) -> None:
        self.episodes = 0
        self.returns = 0
        self.return_sum = 0.0
        self._returns: deque[float] = deque(maxlen=_EPISODES_KEPT)
        self._lengths: deque[int] = deque(maxlen=_EPISODES_KEPT)

    def add(self, finished: Iterable[tuple[float, int]]) -> None:
        for episode_return, length in finished:
            self.episodes += 1
            if abs(episode_return) <= _RETURN_MAX:
                self._returns.append(episode_return)
                self.returns += 1
                self.return_sum += float(episode_return)
            self._lengths.append(length)

    @property
    def return_mean(self) -> float | None:
        return float(np.mean(self._returns)) if self._returns else None

    @property
    def length_mean(self) -> float | None:
        return float(np.mean(self._lengths)) if self._lengths else None
