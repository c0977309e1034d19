"""A manager receives messages that are not its learner's, on its learner's channels: it goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
from fake_learner import FakeLearner, a_model, a_run, free_address
from test_manager import ManagerProcess

from vedette_protocol import topics
from vedette_protocol.codec import encode
from vedette_protocol.messages import Ack, ModelChunk, Refusal, Run, Stop
from vedette_protocol.model import pack_model, split_into_chunks
from vedette_protocol.schema import Schema

RNG = np.random.default_rng(3)


@pytest.fixture
def learner() -> Iterator[FakeLearner]:
    learner = FakeLearner(free_address(), a_run())
    yield learner
    learner.close()


@pytest.fixture
def manager(learner: FakeLearner, tmp_path: Path) -> Iterator[ManagerProcess]:
    manager = ManagerProcess(learner.address, 1, tmp_path / "manager.log")
    learner.until(lambda: learner.rows() > 200, 60)
    yield manager
    manager.end()


def spoiled_headers(message: Any) -> Iterator[list[bytes]]:
    """The message with each field of its header wrong in turn."""
    header, *rest = (bytes(frame) for frame in encode(message))
    fields = msgpack.unpackb(header)
    for field in fields:
        if field == "v":
            continue  # another version is another program: the manager ends, as it should
        for value in (None, -1, 2**64 - 1, "\x00", b"x", [], {}, 0.5, True):
            if value != fields[field]:
                yield [msgpack.packb({**fields, field: value}), *rest]


def test_what_is_no_learners_word_is_refused_and_play_goes_on(
    learner: FakeLearner, manager: ManagerProcess
) -> None:
    run = learner.run
    report = learner.report()
    ack = Ack(run.run_id, 1, 5, "m1", report.incarnation, 2**40, 0, 0, 0, 9, 0, 0)
    other = Schema.from_arrays({"w": np.zeros(3, np.float32)})
    (foreign,) = split_into_chunks(
        run.run_id, 1, other.hash, pack_model(9, {"w": np.ones(3, "f4")}, other)
    )
    poisoned = {name: np.full_like(array, np.nan) for name, array in a_model(run).items()}
    nans = list(
        split_into_chunks(run.run_id, 1, run.model.hash, pack_model(2**40, poisoned, run.model))
    )
    torn = [dataclasses.replace(chunk, digest=bytes(8)) for chunk in nans]

    control: list[list[bytes]] = [[RNG.bytes(n)] for n in (0, 1, 100, 5000)]
    for message in (ack, run, Stop("another", 1, "x", True), Refusal("m1", 1, "key", "x")):
        control += [one for one in spoiled_headers(message) if not is_sound(message, one)]
    control += frames_of(
        ack,
        Refusal("m1", 1, "id", "x"),
        Stop("another", 1, "x", final=True),
        dataclasses.replace(run, epoch=0),
    )
    control.append([*[bytes(f) for f in encode(run)][:1], b"\x91" * 100_000])
    models = [[RNG.bytes(n)] for n in (0, 100, 5000)] + frames_of(foreign, *torn)
    models += [one for one in spoiled_headers(nans[0]) if one]
    for topic in (topics.ALL, topics.manager_topic("m1")):
        for frames in control:
            learner.say_raw("control", [topic, *frames])
        for frames in models:
            learner.say_raw("models", [topic, *frames])

    rows = learner.rows()
    learner.until(lambda: learner.rows() > rows + 3000, 60)
    assert manager.process.poll() is None, manager.log
    assert learner.report().incarnation == report.incarnation  # it has not begun anew
    assert learner.report().actors[0].version == 0  # no foreign model was acted on
    assert len(manager.log.splitlines()) < 60


def test_a_model_that_diverged_or_is_of_another_spec_is_said_and_never_acted_on(
    learner: FakeLearner, manager: ManagerProcess
) -> None:
    run = learner.run
    arrays = a_model(run)
    nans = {name: np.full_like(array, np.nan) for name, array in arrays.items()}
    other = Schema.from_arrays({"w": np.zeros(3, np.float32)})
    diverged = split_into_chunks(run.run_id, 1, run.model.hash, pack_model(5, nans, run.model))
    foreign = split_into_chunks(
        run.run_id, 1, other.hash, pack_model(6, {"w": np.ones(3, "f4")}, other)
    )
    for pause_s, wrong, why in (
        (0.0, diverged, "not finite"),
        (3.5, foreign, f"model 6 is of spec {other.hash}"),  # what alternates is said rarely
    ):
        learner.serve(pause_s)
        for frames in frames_of(*wrong):
            learner.say_raw("models", [topics.ALL, *frames])
        learner.until(lambda why=why: why in manager.log)
    rows = learner.rows()
    learner.until(lambda: learner.rows() > rows + 500)
    assert {batch.version for batch in learner.batches} == {0}
    learner.publish(version=7)
    learner.until(lambda: learner.batches[-1].version == 7)
    assert {batch.version for batch in learner.batches} == {0, 7}
    assert manager.log.count("not acted on") == 2


def frames_of(*messages: Ack | Run | Stop | Refusal | ModelChunk) -> list[list[bytes]]:
    return [[bytes(frame) for frame in encode(message)] for message in messages]


def is_sound(message: object, frames: list[bytes]) -> bool:
    """Fields that may have such values: the run is another, or the learner's number is."""
    fields = msgpack.unpackb(frames[0])
    if isinstance(message, Run):
        return fields["learner"] == 2**64 - 1
    return isinstance(message, Refusal) and fields["incarnation"] != 1
