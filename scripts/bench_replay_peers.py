"""Our replay beside cpprb's and Stable-Baselines3's: rows a second, in and out, in one process.

Run by `scripts/bench_replay_peers` in an environment of its own. All hold the same: 4 floats seen,
an action, a reward, 4 floats seen next, whether it ended. 64 rows in at once, 256 out; prioritized
with the priorities told after each sample. What a peer's buffer returns is left as it is: cpprb's
are arrays, Stable-Baselines3's are tensors.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
from cpprb import PrioritizedReplayBuffer, ReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer as SB3ReplayBuffer

from vedette_rl.core import row_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.bench.replay import calls_per_s
from vedette_services.bench.spread import ratio, spread

CAPACITY, ROWS_IN, ROWS_OUT, SECONDS = 100_000, 64, 256, 0.05
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
Works = dict[str, Callable[[], object]]


def ours(place: Path, errors: np.ndarray) -> Works:
    ring = RingWriter.open(place / "ring", ROW, CAPACITY, run_id="bench")
    batch = {
        name: np.ones((ROWS_IN, *field.shape), field.base)
        for name, (field, _) in ROW.fields.items()
    }

    def insert() -> None:
        if ring.room < 16 * ROWS_IN:
            ring.commit()
        ring.append(batch, ROWS_IN)

    for _ in range(CAPACITY // ROWS_IN + 100):
        insert()
    ring.commit()
    reader = RingReader(place / "ring")
    uniform = UniformReplay(reader, np.random.default_rng(0))
    prioritized = PrioritizedReplay(reader, np.random.default_rng(0), ReplayConfig())
    return {
        "insert": insert,
        "sample": lambda: uniform.sample(ROWS_OUT),
        "prioritized": lambda: prioritized.update_priority(
            prioritized.sample(ROWS_OUT).indices, errors
        ),
    }


def cpprb(errors: np.ndarray) -> Works:
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
    for _ in range(CAPACITY // ROWS_IN + 1):
        uniform.add(**batch)
        prioritized.add(**batch)

    def draw() -> None:
        sample = prioritized.sample(ROWS_OUT, beta=0.4)
        prioritized.update_priorities(sample["indexes"], errors)

    return {
        "insert": lambda: uniform.add(**batch),
        "sample": lambda: uniform.sample(ROWS_OUT),
        "prioritized": draw,
    }


def stable_baselines3() -> Works:
    box = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    buffer = SB3ReplayBuffer(
        CAPACITY, box, gym.spaces.Discrete(2), device="cpu", n_envs=ROWS_IN,
        handle_timeout_termination=False,
    )  # fmt: skip
    obs, ones = np.ones((ROWS_IN, 4), np.float32), np.ones(ROWS_IN, np.float32)
    action, infos = np.ones((ROWS_IN, 1), np.int64), [{} for _ in range(ROWS_IN)]

    def insert() -> None:
        buffer.add(obs, obs, action, ones, ones, infos)

    for _ in range(CAPACITY // ROWS_IN + 1):
        insert()
    return {"insert": insert, "sample": lambda: buffer.sample(ROWS_OUT)}


def main() -> None:
    rounds = int(sys.argv[1])
    errors = np.random.default_rng(2).random(ROWS_OUT).astype(np.float32)
    rates: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as place:
        peers = {
            "vedette": ours(Path(place), errors),
            "cpprb": cpprb(errors),
            "stable_baselines3": stable_baselines3(),
        }
        for _ in range(rounds):
            for group, rows in (
                ("insert", ROWS_IN),
                ("sample", ROWS_OUT),
                ("prioritized", ROWS_OUT),
            ):
                for name, works in peers.items():
                    if group in works:
                        rate = rows * calls_per_s(works[group], SECONDS)
                        rates.setdefault(group, {}).setdefault(name, []).append(rate)
    for group, found in rates.items():
        for name, values in found.items():
            told = {"bench": group, "of": name, "rows_per_s": spread(values)}
            if name != "vedette":
                told["vedette_ratio"] = ratio(found["vedette"], values)
            print(json.dumps(told))


if __name__ == "__main__":
    main()
