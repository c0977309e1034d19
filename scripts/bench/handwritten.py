"""The upper bound of the learner: a torch loop written by hand, with no ingestion beside it.

DQN on an MLP, Adam, Huber loss, clipped gradients, uniform samples from numpy arrays.
`python -m bench.handwritten BATCH_SIZE HIDDEN SECONDS double|single`
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from torch import nn

_ROWS = 100_000
_OBS = 4
_ACTIONS = 2
_WARM_OPTS = 50
_TARGET_INTERVAL = 100


def network(hidden: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(_OBS, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, _ACTIONS),
    )


class Loop:
    """Arrays, two networks and Adam."""

    def __init__(self, batch_size: int, hidden: int, *, double: bool) -> None:
        self._double = double
        rng = self._rng = np.random.default_rng(0)
        self._batch_size = batch_size
        self._obs = rng.random((_ROWS, _OBS), np.float32)
        self._next_obs = rng.random((_ROWS, _OBS), np.float32)
        self._action = rng.integers(0, _ACTIONS, _ROWS)
        self._reward = rng.random(_ROWS, np.float32)
        self._terminated = rng.random(_ROWS) < 0.02
        self._q = network(hidden)
        self._target = network(hidden)
        self._target.load_state_dict(self._q.state_dict())
        self._adam = torch.optim.Adam(self._q.parameters(), lr=1e-3, fused=True)
        self._opts = 0

    def opt(self) -> None:
        """One optimization step on one batch."""
        rows = self._rng.integers(0, _ROWS, self._batch_size)
        obs = torch.from_numpy(self._obs[rows])
        next_obs = torch.from_numpy(self._next_obs[rows])
        action = torch.from_numpy(self._action[rows])
        reward = torch.from_numpy(self._reward[rows])
        alive = 1.0 - torch.from_numpy(self._terminated[rows]).float()
        with torch.no_grad():
            values = self._target(next_obs)
            best = (self._q(next_obs) if self._double else values).argmax(1, keepdim=True)
            value = values.gather(1, best).squeeze(1)
            target = reward + 0.99 * alive * value
        q = self._q(obs).gather(1, action.unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, target)
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        nn.utils.clip_grad_norm_(self._q.parameters(), 10.0)
        self._adam.step()
        self._opts += 1
        if self._opts % _TARGET_INTERVAL == 0:
            self._target.load_state_dict(self._q.state_dict())


def main() -> None:
    """Print optimization steps a second, and processor seconds of one."""
    batch_size = int(sys.argv[1])
    hidden = int(sys.argv[2])
    seconds = float(sys.argv[3])
    torch.set_num_threads(1)
    loop = Loop(batch_size, hidden, double=sys.argv[4] == "double")
    for _ in range(_WARM_OPTS):
        loop.opt()
    opts = 0
    began = time.monotonic()
    spent = -time.process_time()
    while time.monotonic() - began < seconds:
        loop.opt()
        opts += 1
    print(opts / (time.monotonic() - began), (spent + time.process_time()) / opts)


if __name__ == "__main__":
    main()
