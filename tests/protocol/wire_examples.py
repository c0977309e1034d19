"""One message of every kind, and the schema they speak of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vedette_protocol.column import Column, Columns
from vedette_protocol.messages import (
    Ack,
    ActorReport,
    Batch,
    EvaluationReport,
    Message,
    ModelChunk,
    Refusal,
    Report,
    Run,
    Status,
    Stop,
)
from vedette_protocol.model import pack_model, split_into_chunks
from vedette_protocol.schema import Schema

SCHEMA = Schema(
    (
        Column("obs", "f4", (4,)),
        Column("action", "i8", (), 0, 1),
        Column("reward", "f4"),
        Column("next_obs", "f4", (4,)),
        Column("terminated", "?"),
        Column("truncated", "?"),
        Column("n_steps", "u1"),
    )
)
SHARING_SCHEMA = Schema(
    (
        Column("obs", "u4", (4,), role="place"),
        Column("reward", "f4"),
        Column("next_obs", "u4", (4,), role="place"),
        Column("frames", "u1", (3, 5), role="shared"),
    )
)
STEPS_SCHEMA = Schema(
    (
        *SCHEMA.columns,
        Column("env", "u4", (), 0, 65_535),
        Column("t", "i8", (), 0, 2**62 - 1),
        Column("begins", "?"),
    )
)
MODEL = Schema((Column("0.weight", "f4", (2, 4)), Column("0.bias", "f4", (2,))))


def example_columns(rows: int) -> Columns:
    """Columns of `SCHEMA` whose values are told apart."""
    numbers = np.arange(rows)
    quarters = np.arange(rows * 4, dtype=np.float32) / 4 - 1
    return {
        "obs": quarters.reshape(rows, 4),
        "action": numbers % 2,
        "reward": numbers.astype(np.float32) / 2,
        "next_obs": quarters.reshape(rows, 4) + np.float32(1),
        "terminated": numbers % 3 == 2,
        "truncated": np.zeros(rows, np.bool_),
        "n_steps": np.ones(rows, np.uint8),
    }


def sharing_columns(rows: int) -> Columns:
    """Columns of `SHARING_SCHEMA`: an episode's beginning, its first frame seen more than once."""
    moved = np.arange(rows, dtype=np.uint32)[:, None] + np.arange(4, dtype=np.uint32)
    entries = np.arange((rows + 3) * 15, dtype=np.uint32) % 256
    return {
        "obs": np.maximum(moved, 1) - np.uint32(1),
        "reward": np.arange(rows).astype(np.float32),
        "next_obs": moved,
        "frames": entries.astype(np.uint8).reshape(rows + 3, 3, 5),
    }


def steps_columns(rows: int) -> Columns:
    """Columns of `STEPS_SCHEMA`: steps of two environments in turn, of episodes that begin."""
    numbers = np.arange(rows)
    return {
        **example_columns(rows),
        "env": (numbers % 2).astype(np.uint32),
        "t": numbers // 2 + (5 << 32),
        "begins": numbers < 2,
    }


def example_batch(rows: int = 3, **changes: object) -> Batch:
    """A batch of `SCHEMA`."""
    batch = Batch(
        run_id="20250102-cartpole",
        manager="host-a",
        incarnation=0x0123456789ABCDEF,
        seq=41,
        actor=3,
        epoch=2,
        version=1500,
        schema=SCHEMA.hash,
        rows=rows,
        payload=bytes(SCHEMA.pack(example_columns(rows), rows)),
        base=40,
        env_steps=rows + 1,
    )
    return batch._replace(**changes)


def example_chunk() -> ModelChunk:
    """The only chunk of a small model."""
    weight = np.arange(8, dtype=np.float32).reshape(2, 4)
    body = pack_model(1500, {"0.weight": weight, "0.bias": np.zeros(2, np.float32)}, MODEL)
    (chunk,) = split_into_chunks("20250102-cartpole", 2, MODEL.hash, body)
    return chunk


def batch_of_frames() -> Batch:
    """A batch of `SHARING_SCHEMA`."""
    payload = bytes(SHARING_SCHEMA.pack(sharing_columns(3), 3))
    return example_batch(schema=SHARING_SCHEMA.hash, payload=payload)


def batch_of_steps() -> Batch:
    """A batch of `STEPS_SCHEMA`."""
    payload = bytes(STEPS_SCHEMA.pack(steps_columns(3), 3))
    return example_batch(schema=STEPS_SCHEMA.hash, payload=payload)


REPORT = Report(
    manager="host-a",
    incarnation=0x0123456789ABCDEF,
    host="a.example",
    state="running",
    run_id="20250102-cartpole",
    produced=4200,
    dropped=100,
    window_batches=2,
    window_rows=200,
    window_bytes=9424,
    sequenced=41,
    base=40,
    limit=104,
    features=("example-feature",),
    actors=(
        ActorReport(0, True, 0, 2100, 20, 1500, 105.5, 105.0),
        ActorReport(1, False, 2, 2100, 0, 1400, None, None, "the environment raised ValueError"),
    ),
)

RUN = Run(
    run_id="20250102-cartpole",
    epoch=2,
    learner=0xFEDCBA9876543210,
    schema=SCHEMA,
    model=MODEL,
    env={"id": "CartPole-v1", "kwargs": {}, "max_episode_steps": None},
    agent={"name": "dqn", "discount": 0.99, "hidden_sizes": [64, 64], "dueling": True},
    actors={"envs_per_actor": 8, "n_buffer": 100},
    seed=7,
    batch_rows=100,
    batch_env_steps=116,
    features=("example-feature",),
)

ACK = Ack(
    run_id="20250102-cartpole",
    epoch=2,
    learner=0xFEDCBA9876543210,
    manager="host-a",
    incarnation=0x0123456789ABCDEF,
    contiguous=40,
    extras=0b1010,
    rejected_batches=1,
    rejected_rows=100,
    limit=104,
    version=1510,
    first_actor=16,
    rejected_reason="column 'reward' has a value that is not finite",
)

EXAMPLES: dict[str, Message] = {
    "batch": example_batch(),
    "batch-of-frames": batch_of_frames(),
    "batch-of-steps": batch_of_steps(),
    "report": REPORT,
    "report-of-evaluation": replace(
        REPORT,
        features=("evaluate",),
        evaluation=EvaluationReport(
            0x1122334455667788, 2, 1504, 20, 181.5, 12.25, 150.0, 200.0, 181.5, 3
        ),
    ),
    "report-of-late-samples": replace(REPORT, delay_s=12.5, failures=3),
    "report-of-returns": replace(
        REPORT,
        actors=(ActorReport(0, True, 0, 2100, 21, 1500, 105.5, 105.0, "", 20, 2110.0),),
    ),
    "report-of-an-ended-session": replace(
        REPORT, features=("outbox",), actors=(), sequenced=43, ended=True
    ),
    "report-of-an-outbox-without-its-disk": replace(REPORT, features=("outbox",), memory_rows=1200),
    "run": RUN,
    "run-with-evaluations": replace(
        RUN,
        features=("evaluate",),
        evaluation={"episodes": 20, "seed": 10000, "max_episode_steps": None},
    ),
    "run-of-frames": replace(RUN, schema=SHARING_SCHEMA),
    "run-of-steps": replace(RUN, schema=STEPS_SCHEMA),
    "ack": ACK,
    "ack-to-evaluate": replace(
        ACK,
        extras=0,
        rejected_batches=0,
        rejected_rows=0,
        rejected_reason="",
        evaluate=0x1122334455667788,
        evaluate_version=1500,
    ),
    "ack-to-an-outbox": replace(ACK, safe=38),
    "ack-of-a-strict-run": replace(ACK, runs=2),
    "ack-without-credit": Ack(
        run_id="",
        epoch=0,
        learner=1,
        manager="host-a",
        incarnation=0x0123456789ABCDEF,
        contiguous=0,
        extras=0,
        rejected_batches=0,
        rejected_rows=0,
        limit=0,
        version=0,
        first_actor=0,
        reason="the learner is warming up",
    ),
    "stop": Stop("20250102-cartpole", 2, "max_opts", final=True),
    "refusal": Refusal("host-a", 0x0123456789ABCDEF, "version", "speak version 2"),
    "status": Status(b'{"run_id":"20250102-cartpole"}'),
    "model": example_chunk(),
}
