"""The batches that the bench's producers make up."""

import numpy as np

from bench.daemons import ingest_run
from bench.producer import payloads_of
from vedette_protocol.schema import Schema
from vedette_rl.envs.make import probe_environment
from vedette_services.run.replay_layout import replay_layout


def schema_of(shape: tuple[int, ...], dtype: str, frame_stack: int = 0) -> Schema:
    config = ingest_run(5, shape, dtype, 100, frame_stack=frame_stack)
    return replay_layout(config, probe_environment(config.env)).schema


def test_noise_is_what_the_schema_accepts() -> None:
    schema = schema_of((4,), "float32")
    first, second, *_ = payloads_of(schema, 5)
    assert first != second
    columns = schema.views(first, 5)
    schema.check_values(columns)
    assert columns["obs"].shape == (5, 4)
    assert columns["n_steps"].tolist() == [1] * 5


def test_stacks_share_their_frames_as_an_episode_that_goes_on() -> None:
    schema = schema_of((84, 84), "uint8", frame_stack=4)
    columns = schema.views(payloads_of(schema, 5)[0], 5)
    schema.check_values(columns)
    assert columns["frames"].shape == (9, 84, 84)
    assert columns["obs"][0].tolist() == [0, 1, 2, 3]
    assert np.array_equal(columns["next_obs"][:-1], columns["obs"][1:])
    assert np.array_equal(columns["next_obs"][:, :-1], columns["obs"][:, 1:])
