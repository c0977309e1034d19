"""The trainer's process: its end of the replay, and ranks that leave."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configurations import configured
from starts import spec_of

from vedette_rl.device.ranks import Ranks
from vedette_rl.envs.make import probe_environment
from vedette_rl.replay.frame_ring import open_writer
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.ring import RingWriter
from vedette_services.config import RunConfig
from vedette_services.host.processes import WakeupEvent
from vedette_services.learner.trainer import process
from vedette_services.learner.trainer.process import open_replay
from vedette_services.net.addresses import Address
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.replay_layout import replay_layout


@pytest.fixture
def spec(tmp_path: Path) -> LearnerSpec:
    settings = ["replay.capacity=2000", "replay.prioritized=true"]
    config: RunConfig = configured(*settings, env="CartPole-v1")
    return spec_of(RunDirectory(tmp_path), "run", config, Address("127.0.0.1", 5555))


def gateways_end(spec: LearnerSpec) -> RingWriter:
    layout = replay_layout(spec.config, probe_environment(spec.config.env))
    capacity = spec.config.replay.capacity
    return open_writer(spec.run.replay, layout.stored, capacity, run_id="run", guard=layout.guard)


def test_damaged_priorities_begin_anew_and_that_is_said(
    spec: LearnerSpec, caplog: pytest.LogCaptureFixture
) -> None:
    gateways_end(spec).close()
    assert isinstance(open_replay(spec, 1, in_files=True), PrioritizedReplay)
    priorities = spec.run.replay / "priorities.bin"
    size = priorities.stat().st_size
    os.truncate(priorities, 5000)
    with caplog.at_level(logging.WARNING):
        assert isinstance(open_replay(spec, 2, in_files=True), PrioritizedReplay)
    (said,) = caplog.messages
    assert said.startswith(f"{priorities} is torn: 5000 bytes, where {size} belong: priorities")
    assert priorities.stat().st_size == size
    caplog.clear()
    open_replay(spec, 3, in_files=True)
    assert not caplog.messages


@pytest.mark.parametrize("number", [0, 1])
def test_each_rank_leaves_the_others_behind_its_last_step(
    spec: LearnerSpec, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    spec = replace(spec, config=configured("learner.ranks=2", env="CartPole-v1"))
    done: list[str] = []
    monkeypatch.setenv(process._IS_RANK, "1")
    monkeypatch.setattr(process, "adopt_descriptors", lambda *_: None)
    monkeypatch.setattr(process, "join", lambda *_: done.append("join"))
    monkeypatch.setattr(process, "ranks", lambda: Ranks(number, 2))
    monkeypatch.setattr(process, "_train", lambda *_: done.append("train"))
    monkeypatch.setattr(process, "follow", lambda *_: done.append("follow"))
    monkeypatch.setattr(process, "leave", lambda: done.append("leave"))
    process.train_as_rank(spec, 1, WakeupEvent(), WakeupEvent())
    assert done == ["join", "follow" if number else "train", "leave"]


def test_the_priorities_of_an_earlier_release_are_read_and_not_written(spec: LearnerSpec) -> None:
    ring = gateways_end(spec)
    columns = {name: np.zeros((5, *c.shape[1:]), c.dtype) for name, c in ring.columns.items()}
    ring.append(columns, 5)
    ring.commit()
    ring.close()
    earlier: Any = open_replay(spec, 1, in_files=True)
    earlier.update_priority(earlier.sample(5).indices, np.full(5, 7.0))
    masses = earlier.tree.leaves[:5].copy()
    replay: Any = open_replay(spec, 2)
    assert isinstance(replay, PrioritizedReplay)
    np.testing.assert_array_equal(replay.tree.leaves[:5], masses)
    replay.update_priority(replay.sample(5).indices, np.full(5, 70.0))
    again: Any = open_replay(spec, 3)
    np.testing.assert_array_equal(again.tree.leaves[:5], masses)
