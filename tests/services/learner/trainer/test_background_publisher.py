"""Models leave the trainer on a thread of their own: the newest wins, and the last is written."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from vedette_protocol.errors import ModelError
from vedette_protocol.schema import Schema
from vedette_rl.core import ModelInfo
from vedette_rl.errors import RlError
from vedette_services.learner.trainer.background import BackgroundPublisher
from vedette_services.run.model_map import ModelMapReader, ModelMapWriter, holds_model

SCHEMA = Schema.from_arrays({"w": np.zeros(3, np.float32)})


def model(version: int) -> ModelInfo:
    return ModelInfo(version, {"w": np.full(3, version, np.float32)})


class HeldWriter(ModelMapWriter):
    """Writes when it is let, and remembers which versions."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SCHEMA)
        self.begun = threading.Event()
        self.let = threading.Event()
        self.written: list[int] = []

    def write(self, epoch: int, info: ModelInfo, env_steps: int = 0) -> None:
        self.begun.set()
        assert self.let.wait(10)
        super().write(epoch, info, env_steps)
        self.written.append(info.version)


def poll_failures(seconds: float, publisher: BackgroundPublisher) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        publisher.raise_failure()
        time.sleep(0.001)


def test_the_last_model_is_in_the_map_after_the_close(tmp_path: Path) -> None:
    publisher = BackgroundPublisher(ModelMapWriter(tmp_path / "map", SCHEMA), epoch=2)
    for version in range(100):
        publisher.publish(model(version))
    publisher.close(10)
    found = ModelMapReader(tmp_path / "map").read()
    assert found is not None
    assert (found.epoch, found.version) == (2, 99)
    assert found.info().arrays["w"].tolist() == [99, 99, 99]


def test_a_newer_model_takes_the_place_of_one_that_waits(tmp_path: Path) -> None:
    writer = HeldWriter(tmp_path / "map")
    publisher = BackgroundPublisher(writer, epoch=1)
    publisher.publish(model(0))
    assert writer.begun.wait(10)
    for version in (1, 2, 3):
        publisher.publish(model(version))
    writer.let.set()
    publisher.close(10)
    assert writer.written == [0, 3]


def test_a_model_is_told_of_once_it_is_in_the_map(tmp_path: Path) -> None:
    reader = ModelMapReader(tmp_path / "map")
    told = list[int]()

    def tell() -> None:
        found = reader.read()
        assert found is not None
        told.append(found.version)

    publisher = BackgroundPublisher(ModelMapWriter(tmp_path / "map", SCHEMA), 1, tell)
    publisher.publish(model(4))
    publisher.close(10)
    assert told == [4]


def test_a_model_of_another_shape_is_told_to_the_training(tmp_path: Path) -> None:
    publisher = BackgroundPublisher(ModelMapWriter(tmp_path / "map", SCHEMA), epoch=1)
    publisher.publish(ModelInfo(0, {"other": np.zeros(3, np.float32)}))
    with pytest.raises(ModelError, match="other"):
        publisher.close(10)
    with pytest.raises(ModelError):
        publisher.publish(model(1))


def test_a_model_that_cannot_be_written_is_told_before_the_next_one(tmp_path: Path) -> None:
    publisher = BackgroundPublisher(ModelMapWriter(tmp_path / "map", SCHEMA), epoch=1)
    publisher.raise_failure()
    publisher.publish(ModelInfo(0, {"other": np.zeros(3, np.float32)}))
    with pytest.raises(ModelError, match="other"):
        poll_failures(10, publisher)


def test_a_model_that_is_not_finite_reaches_nobody(tmp_path: Path) -> None:
    publisher = BackgroundPublisher(ModelMapWriter(tmp_path / "map", SCHEMA), epoch=2)
    publisher.publish(ModelInfo(2, {"w": np.array([0.0, np.nan, 0.0], np.float32)}))
    with pytest.raises(RlError, match="w is not finite after optimization step 2"):
        publisher.close(10)
    assert not holds_model(tmp_path / "map")
