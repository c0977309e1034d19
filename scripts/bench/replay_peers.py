"""Our replay beside cpprb's, Stable-Baselines3's, TorchRL's and Tianshou's, in one process.

`python -m bench.replay_peers ROUNDS [PEER ...]`, in an environment of its own, prints the rates as
one JSON object. All hold the same: 4 floats seen,
an action, a reward, 4 floats seen next, whether it ended. 64 rows in at once, 256 out; prioritized
with the priorities told after each sample, and of rows inserted the first priority too. What a
peer's buffer returns is left as it is: arrays, tensors, or its own batch. Sequences, which only
TorchRL draws besides: `bench.replay_sequences`.
"""

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from cpprb import PrioritizedReplayBuffer, ReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer as SB3ReplayBuffer

from bench import replay_sequences
from bench.measuring import ratio_of_rounds, summarize_rounds
from bench.replay import calls_per_s
from vedette_rl.core import row_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.prioritized import PrioritizedReplay, open_priorities
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.uniform import UniformReplay

CAPACITY = 100_000
ROWS_IN = 64
ROWS_OUT = 256
SECONDS = 0.05
COMMIT_EVERY = 16  # batches of ours: the gateway commits once for all that has come meanwhile
FILLING = CAPACITY // ROWS_IN + 100
FLOAT = np.dtype(np.float32)
ROW = row_dtype(
    [
        ("obs", FLOAT, (4,)),
        ("action", np.dtype(np.int64), ()),
        ("reward", FLOAT, ()),
        ("next_obs", FLOAT, (4,)),
        ("terminated", np.dtype(np.bool_), ()),
    ]
)
ROWS_OF = {
    "insert": ROWS_IN,
    "sample": ROWS_OUT,
    "prioritized insert": ROWS_IN,
    "prioritized sample": ROWS_OUT,
    replay_sequences.DRAW: replay_sequences.SEQUENCES * replay_sequences.STEPS,
    replay_sequences.BETWEEN: replay_sequences.SEQUENCES * replay_sequences.STEPS,
}
LOOK_EVERY = dict.fromkeys((replay_sequences.DRAW, replay_sequences.BETWEEN), 1)
"""Calls between two looks at the clock, where one is long."""
ERRORS = np.random.default_rng(2).random(ROWS_OUT).astype(np.float32)
Works = dict[str, Callable[[], object]]


def ours(place: Path) -> Works:
    batch = {
        name: np.ones((ROWS_IN, *field.shape), field.base)
        for name, (field, _) in ROW.fields.items()
    }

    def inserting(name: str, after_commit: Callable[[], object]) -> Callable[[], None]:
        ring = RingWriter.open(place / name, ROW, CAPACITY, run_id="bench")
        pending = 0

        def insert() -> None:
            nonlocal pending
            ring.append(batch, ROWS_IN)
            pending += 1
            if pending == COMMIT_EVERY:
                ring.commit()
                pending = 0
                after_commit()

        return insert

    insert = inserting("uniform", lambda: None)
    insert_prioritized = inserting("prioritized", lambda: _see_new_rows(prioritized))
    uniform_ring, ring = RingReader(place / "uniform"), RingReader(place / "prioritized")
    uniform = UniformReplay(uniform_ring, np.random.default_rng(0))
    prioritized = PrioritizedReplay(
        ring, np.random.default_rng(0), ReplayConfig(), memory=open_priorities(ring)
    )
    for _ in range(FILLING):
        insert()
        insert_prioritized()
    return {
        "insert": insert,
        "sample": lambda: uniform.sample(ROWS_OUT),
        "prioritized insert": insert_prioritized,
        "prioritized sample": lambda: prioritized.update_priority(
            prioritized.sample(ROWS_OUT).indices, ERRORS
        ),
    }


def _see_new_rows(replay: PrioritizedReplay) -> None:
    """Give new rows their priorities now, and not at the next draw."""
    replay.look()
    replay.add_new_rows()


def cpprb() -> Works:
    columns = {
        "obs": {"shape": 4},
        "act": {"dtype": np.int64},
        "rew": {},
        "next_obs": {"shape": 4},
        "done": {"dtype": np.bool_},
    }
    batch = {
        "obs": np.ones((ROWS_IN, 4), np.float32),
        "act": np.ones(ROWS_IN, np.int64),
        "rew": np.ones(ROWS_IN, np.float32),
        "next_obs": np.ones((ROWS_IN, 4), np.float32),
        "done": np.zeros(ROWS_IN, np.bool_),
    }
    uniform = ReplayBuffer(CAPACITY, columns)
    prioritized = PrioritizedReplayBuffer(CAPACITY, columns)
    for _ in range(FILLING):
        uniform.add(**batch)
        prioritized.add(**batch)

    def draw() -> None:
        sample = prioritized.sample(ROWS_OUT, beta=0.4)
        prioritized.update_priorities(sample["indexes"], ERRORS)

    return {
        "insert": lambda: uniform.add(**batch),
        "sample": lambda: uniform.sample(ROWS_OUT),
        "prioritized insert": lambda: prioritized.add(**batch),
        "prioritized sample": draw,
    }


def stable_baselines3() -> Works:
    box = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    buffer = SB3ReplayBuffer(
        CAPACITY,
        box,
        gym.spaces.Discrete(2),
        device="cpu",
        n_envs=ROWS_IN,
        handle_timeout_termination=False,
    )
    obs = np.ones((ROWS_IN, 4), np.float32)
    ones = np.ones(ROWS_IN, np.float32)
    action = np.ones((ROWS_IN, 1), np.int64)
    infos = [{} for _ in range(ROWS_IN)]

    def insert() -> None:
        buffer.add(obs, obs, action, ones, ones, infos)

    for _ in range(FILLING):
        insert()
    return {"insert": insert, "sample": lambda: buffer.sample(ROWS_OUT)}


def torchrl() -> Works:
    import torch
    from tensordict import TensorDict
    from torchrl.data import (
        LazyTensorStorage,
        TensorDictPrioritizedReplayBuffer,
        TensorDictReplayBuffer,
    )

    batch = TensorDict(
        {
            "obs": torch.ones(ROWS_IN, 4),
            "action": torch.ones(ROWS_IN, dtype=torch.int64),
            "reward": torch.ones(ROWS_IN),
            "next_obs": torch.ones(ROWS_IN, 4),
            "terminated": torch.zeros(ROWS_IN, dtype=torch.bool),
        },
        batch_size=[ROWS_IN],
    )
    uniform = TensorDictReplayBuffer(storage=LazyTensorStorage(CAPACITY), batch_size=ROWS_OUT)
    works: Works = {
        "insert": lambda: uniform.extend(batch.clone()),
        "sample": lambda: uniform.sample(),
    }
    try:
        prioritized = TensorDictPrioritizedReplayBuffer(
            alpha=0.6,
            beta=0.4,
            storage=LazyTensorStorage(CAPACITY),
            batch_size=ROWS_OUT,
            priority_key="td_error",
        )
    except RuntimeError as error:
        print(f"no prioritized buffer of TorchRL here: {error}", file=sys.stderr)
    else:
        errors = torch.from_numpy(ERRORS)

        def draw() -> None:
            sample = prioritized.sample()
            sample["td_error"] = errors
            prioritized.update_tensordict_priority(sample)

        works["prioritized insert"] = lambda: prioritized.extend(batch.clone())
        works["prioritized sample"] = draw
    for _ in range(FILLING):
        for name in ("insert", "prioritized insert"):
            if name in works:
                works[name]()
    return works


def tianshou() -> Works:
    from tianshou.data import (
        Batch,
        PrioritizedVectorReplayBuffer,
        VectorReplayBuffer,
    )

    batch = Batch(
        obs=np.ones((ROWS_IN, 4), np.float32),
        act=np.ones(ROWS_IN, np.int64),
        rew=np.ones(ROWS_IN, np.float32),
        terminated=np.zeros(ROWS_IN, np.bool_),
        truncated=np.zeros(ROWS_IN, np.bool_),
        obs_next=np.ones((ROWS_IN, 4), np.float32),
        info=Batch(),
    )
    uniform = VectorReplayBuffer(CAPACITY, ROWS_IN)
    prioritized = PrioritizedVectorReplayBuffer(CAPACITY, ROWS_IN, alpha=0.6, beta=0.4)
    for _ in range(FILLING):
        uniform.add(batch)
        prioritized.add(batch)

    def draw() -> None:
        _, indices = prioritized.sample(ROWS_OUT)
        prioritized.update_weight(indices, ERRORS)

    return {
        "insert": lambda: uniform.add(batch),
        "sample": lambda: uniform.sample(ROWS_OUT),
        "prioritized insert": lambda: prioritized.add(batch),
        "prioritized sample": draw,
    }


PEERS: dict[str, Callable[[], Works]] = {
    "cpprb": cpprb,
    "stable_baselines3": stable_baselines3,
    "torchrl": torchrl,
    "tianshou": tianshou,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int)
    parser.add_argument("peers", nargs="*", choices=PEERS)
    args = parser.parse_args()
    rounds = args.rounds
    chosen = args.peers or PEERS
    warnings.simplefilter("ignore")
    rates: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        peers = {"vedette": ours(place), **{name: PEERS[name]() for name in chosen}}
        if "torchrl" in chosen:
            peers["vedette"] |= replay_sequences.ours(place)
            peers |= replay_sequences.torchrl(place)
        for _ in range(rounds):
            for group, rows in ROWS_OF.items():
                look_every = LOOK_EVERY.get(group, 32)
                for name, works in peers.items():
                    if group in works:
                        calls = calls_per_s(works[group], SECONDS, look_every=look_every)
                        rate = rows * calls
                        rates.setdefault(group, {}).setdefault(name, []).append(rate)
    print(json.dumps({group: _compared(by_name) for group, by_name in rates.items()}))


def _compared(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Return rows per second of each, and the ratios of ours to those of others."""
    ours = rates["vedette"]
    return {
        name: {"rows_per_s": summarize_rounds(values)}
        | ({} if name == "vedette" else {"vedette_ratio": ratio_of_rounds(ours, values)})
        for name, values in rates.items()
    }


if __name__ == "__main__":
    main()
