"""Our sequences beside TorchRL's slices, of the same steps of the same width.

64 sequences at once, each 40 steps of burn-in and 80 to learn from: R2D2's. TorchRL knows no
burn-in, and draws slices of 120 steps; what is between two draws is nothing, or 64 rows that come
in. All hold 17 numbers seen, 6 of an action, the reward and the flags. Our rows hold the successor,
who made them and the keys of a sequence, too; TorchRL's slices are drawn without the successor,
which is their best case.

TorchRL has several ways:

    adjacent            its default: the steps of an episode lie one behind the other, so that
                        environments must not take turns; where episodes end is found anew
                        whenever rows came in
    adjacent, memmap    the same in files, as our ring is
    fragmented          steps come as they are played, environments in turn, as ours do
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    SliceSampler,
    TensorDictReplayBuffer,
)

from vedette_rl.core import Columns
from vedette_rl.core.columns import SEQUENCE_KEYS
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.drawn_sequences import UniformSequences
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_services.run.replay_layout import ring_dtype

CAPACITY = 100_000
ROWS_IN = 64
SEQUENCES = 64
BURN_IN = 40
LEARNED = 80
STEPS = BURN_IN + LEARNED
ENVS = 16
EPISODE = 1000
OBS = 17
ACTION = 6
FILLING = CAPACITY // ROWS_IN + 100

DRAW = "sequences"
BETWEEN = f"the same, {ROWS_IN} rows in"
Works = dict[str, Callable[[], object]]
Steps = tuple[NDArray[np.int64], NDArray[np.int64]]


def in_turn() -> Iterator[Steps]:
    """Environments and their times, 64 rows at once: all environments play one step after the
    other."""
    begin = 0
    envs = np.tile(np.arange(ENVS), ROWS_IN // ENVS)
    while True:
        times = begin + np.repeat(np.arange(ROWS_IN // ENVS), ENVS)
        yield envs, times
        begin += ROWS_IN // ENVS


def one_by_one() -> Iterator[Steps]:
    """The same where one environment plays all steps."""
    begin = 0
    while True:
        yield np.zeros(ROWS_IN, np.int64), begin + np.arange(ROWS_IN)
        begin += ROWS_IN


def ours(place: Path) -> Works:
    """Return the draws of our ring on files."""
    box = gym.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action = gym.spaces.Box(-1.0, 1.0, (ACTION,), np.float32)
    row = ring_dtype(transition_dtype(Spaces(box, action), SEQUENCE_KEYS), epoch=True)
    assert row.fields is not None
    ring = RingWriter.open(place / "sequences", row, CAPACITY, run_id="bench")
    batch: Columns = {
        name: np.ones((ROWS_IN, *field[0].shape), field[0].base)
        for name, field in row.fields.items()
    }
    batch["truncated"][:] = False
    steps = in_turn()

    def insert() -> None:
        envs, times = next(steps)
        batch["env"][:] = envs
        batch["t"][:] = times
        batch["begins"][:] = times % EPISODE == 0
        batch["terminated"][:] = times % EPISODE == EPISODE - 1
        ring.append(batch, ROWS_IN)
        ring.commit()

    for _ in range(FILLING):
        insert()
    config = ReplayConfig(capacity=CAPACITY, sequence=LEARNED, burn_in=BURN_IN)
    replay = UniformSequences(RingReader(place / "sequences"), np.random.default_rng(0), config)
    assert replay.sample(SEQUENCES).columns["reward"].shape == (SEQUENCES, STEPS)
    return _works(insert, lambda: replay.sample(SEQUENCES))


def torchrl(place: Path) -> dict[str, Works]:
    """Return the draws of TorchRL, by how its steps lie."""
    ends: dict[str, Any] = {"end_key": ("next", "done"), "cache_values": True}
    keys: dict[str, Any] = {"traj_key": "episode", "step_key": "step", "fragmented": True}
    files = LazyMemmapStorage(CAPACITY, scratch_dir=place / "torchrl")
    return {
        "torchrl, adjacent": _slices(LazyTensorStorage(CAPACITY), one_by_one(), ends),
        "torchrl, adjacent, memmap": _slices(files, one_by_one(), ends),
        "torchrl, fragmented": _slices(LazyTensorStorage(CAPACITY), in_turn(), keys),
    }


def _slices(storage: Any, steps: Iterator[Steps], how: dict[str, Any]) -> Works:
    buffer = TensorDictReplayBuffer(
        storage=storage,
        sampler=SliceSampler(num_slices=SEQUENCES, **how),
        batch_size=SEQUENCES * STEPS,
    )
    obs = torch.ones(ROWS_IN, OBS)
    action = torch.ones(ROWS_IN, ACTION)
    reward = torch.ones(ROWS_IN, 1)
    never = torch.zeros(ROWS_IN, 1, dtype=torch.bool)

    def insert() -> None:
        envs, times = next(steps)
        done = torch.from_numpy(times % EPISODE == EPISODE - 1)[:, None]
        following = {"reward": reward, "done": done, "terminated": done, "truncated": never}
        columns = {
            "obs": obs,
            "action": action,
            "episode": torch.from_numpy(times // EPISODE * ENVS + envs),
            "step": torch.from_numpy(times % EPISODE),
            "next": TensorDict(following, batch_size=[ROWS_IN]),
        }
        buffer.extend(TensorDict(columns, batch_size=[ROWS_IN]))

    for _ in range(FILLING):
        insert()
    assert len(buffer.sample()) == SEQUENCES * STEPS
    return _works(insert, buffer.sample)


def _works(insert: Callable[[], object], draw: Callable[[], object]) -> Works:
    def insert_and_draw() -> None:
        insert()
        draw()

    return {DRAW: draw, BETWEEN: insert_and_draw}
