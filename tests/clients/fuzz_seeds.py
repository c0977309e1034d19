"""Writes inputs for fuzz_client.c: what learners of every described agent send, and some play.

python tests/clients/fuzz_seeds.py FOLDER
"""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import msgpack
import numpy as np
from foreign_run import BOX, CARTPOLE, FLAGS, PENDULUM, ROOM, make_run

from vedette_protocol.codec import encode
from vedette_protocol.messages import Ack, Refusal, Run, Stop
from vedette_protocol.model import in_float16, pack_model, split_into_chunks
from vedette_rl.core import RowColumn
from vedette_rl.core.columns import INTERVENED, SEQUENCE_KEYS
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces

RUN, SIGNAL, MODEL, WEIGHTS, PLAY, SEND = range(6)
INCARNATION = 7
SMALL: dict[str, Any] = {"hidden_sizes": [4, 4]}
IMAGES: dict[str, Any] = {
    "image_features": 4,
    "vector_features": 3,
    "hidden_sizes": [4],
    "convolutions": "small",
}
PICTURE = gym.spaces.Box(0, 255, (9, 10, 3), np.uint8)
STACK = Spaces(gym.spaces.Box(0, 255, (4, 9, 10), np.uint8), gym.spaces.Discrete(6), stack=4)
COLOURS = Spaces(gym.spaces.Box(0, 255, (2, 9, 10, 3), np.uint8), BOX, stack=2)
JOINTS = gym.spaces.Box(-3, 3, (5,), np.float32)
ROBOT = Spaces(gym.spaces.Dict({"joints": JOINTS, "left": PICTURE, "right": PICTURE}), BOX)
MEMORY: dict[str, Any] = {**SMALL, "memory": "gru", "memory_size": 3}
KINDS: list[tuple[str, Spaces, dict[str, Any]]] = [
    ("dqn", CARTPOLE, SMALL),
    ("dqn", CARTPOLE, {**SMALL, "dueling": True, "normalize_observations": True, "n_step": 5}),
    ("dqn", ROOM, {**SMALL, "exploration": {"kind": "softmax"}}),
    ("dqn", FLAGS, {**SMALL, "exploration": {"kind": "ladder"}}),
    ("dqn", FLAGS, {**SMALL, "exploration": {"kind": "constant"}}),
    ("dqn", STACK, {"cnn_hidden_sizes": [2]}),
    ("iqn", CARTPOLE, {**SMALL, "n_cosines": 5, "n_action_quantiles": 3}),
    ("sac", PENDULUM, {**SMALL, "policy_architecture": "layer_norm"}),
    ("sac", COLOURS, IMAGES),
    ("sac", ROBOT, {**IMAGES, "normalize_observations": True}),
    ("td3", PENDULUM, {**SMALL, "policy_architecture": "residual"}),
    ("dqn", CARTPOLE, {**MEMORY, "dueling": True, "memory_dtype": "float16"}),
    ("iqn", CARTPOLE, {**MEMORY, "n_cosines": 5, "n_action_quantiles": 3, "value_rescaling": True}),
    ("sac", PENDULUM, {**MEMORY, "normalize_observations": True}),
    ("appo", ROOM, SMALL),
    ("appo", PENDULUM, {**MEMORY, "normalize_observations": True}),
]


def operation(kind: int, header: bytes = b"", payload: bytes = b"") -> bytes:
    """One operation of an input."""
    return struct.pack("<BHI", kind, len(header), len(payload)) + header + payload


def signal(message: Ack | Stop | Refusal) -> bytes:
    """A message of one frame."""
    return operation(SIGNAL, *(bytes(frame) for frame in encode(message)))


def make_ack(contiguous: int, extras: int, limit: int, epoch: int = 1) -> bytes:
    """An ack to the client."""
    ids = "run-1", epoch, 10 + epoch, "c-1", INCARNATION
    header = msgpack.unpackb(encode(Ack(*ids, contiguous, extras, 0, 0, limit, 1, 0))[0])
    return operation(SIGNAL, msgpack.packb({**header, "evaluate": limit, "evaluate_version": 1}))


def announce(run: Run) -> bytes:
    """A run message, whose evaluations clients play."""
    header, payload = encode(run)
    settings = {"evaluation": {"episodes": 2, "seed": 0, "max_episode_steps": 3}}
    return operation(RUN, bytes(header), msgpack.packb({**msgpack.unpackb(payload), **settings}))


def make_seed(run: Run, model: Any) -> bytes:
    """A learner's life with a client: joins, acks, models, a restart and its end."""
    again = Run(
        **{f: getattr(run, f) for f in Run.__slots__} | {"epoch": 2, "learner": 12, "batch_rows": 3}
    )
    steps = operation(PLAY, payload=bytes(range(124, 132)))
    body = pack_model(1, model.arrays, run.model)
    chunks = [
        operation(MODEL, *(bytes(frame) for frame in encode(chunk)))
        for chunk in split_into_chunks("run-1", run.epoch, run.model.hash, body)
    ]
    parts = [
        *(announce(run), make_ack(0, 0, 4)),
        *(chunks if len(body) < 10_000 else []),
        *(operation(WEIGHTS, payload=bytes((1, 2, 3, 60, 200, 5, 7))), steps, operation(SEND)),
        *(steps, steps, operation(SEND), make_ack(1, 0, 8), steps, operation(SEND)),
        *(make_ack(1, 0b10, 8), steps, operation(SEND)),
        *(announce(again), make_ack(2, 0, 9, 2), steps),
        *(signal(Stop("run-1", 2, "done", final=True)), steps, operation(SEND)),
        signal(Refusal("c-1", INCARNATION, "id", "another")),
    ]
    return b"".join(parts)


def write_seeds(folder: Path) -> list[Path]:
    """Write a file for each kind of run."""
    paths = []
    for k, (agent, spaces, settings) in enumerate(KINDS):
        columns = {1: (RowColumn(INTERVENED, "bool"),), 2: SEQUENCE_KEYS}.get(k, ())
        run, model, _ = make_run(agent, spaces, settings, columns=columns)
        if agent == "appo":
            run = replace(run, actors={"run_length": 3})
        paths.append(folder / f"{k}-{agent}")
        paths[-1].write_bytes(make_seed(run, model))
        if k == 0:
            paths.append(folder / "float16")
            paths[-1].write_bytes(make_seed(*in_half_the_bytes(run, model)))
    return paths


def in_half_the_bytes(run: Run, model: ModelInfo) -> tuple[Run, ModelInfo]:
    """A run whose models travel in float16, and a model as it is sent."""
    sent = {
        name: array.astype(np.float16) if array.ndim > 1 else array
        for name, array in model.arrays.items()
    }
    return replace(run, model=in_float16(run.model)), ModelInfo(model.version, sent)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for path in write_seeds(target):
        print(path, path.stat().st_size)
