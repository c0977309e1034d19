"""Blocks of a queue on a device: copied once, and then the places of each minibatch."""

from __future__ import annotations

import pytest
import torch
from queue_model import BATCH, STEPS, QueueWorld  # of tests/support
from strict_cuda import StrictCuda

from vedette_rl.device.loader import BlockLoader, make_loader

CPU = torch.device("cpu")


def loaded_ids(world: QueueWorld, loader: BlockLoader) -> list[list[int]]:
    """Of each minibatch of three blocks, the ids of its rows as the device has them."""
    found = []
    addresses = set()
    for _ in range(3):
        for _ in range(2):
            world.insert(2, STEPS)
        for _ in range(4):
            world.replay.look()
            loaded = loader.load()
            chosen = loaded.batch["chosen"]
            found.append(loaded.batch["id"].flatten()[chosen].tolist())
            addresses.add((loaded.batch["id"].data_ptr(), chosen.data_ptr()))
            assert loaded.indices.tolist() == found[-1]
            world.replay.done()
        world.hand_over()
        world.write()
    assert len(addresses) == 1, "a captured step reads them where they are"
    return found


def test_minibatches_on_a_device_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    world = QueueWorld()
    loader = make_loader(world.replay, BATCH, CPU)
    assert isinstance(loader, BlockLoader)
    expected = loaded_ids(world, loader)
    assert sorted(expected[0] + expected[1]) == list(range(16))
    cuda = StrictCuda(monkeypatch)
    with cuda:
        world = QueueWorld()
        loader = make_loader(world.replay, BATCH, CPU)
        assert isinstance(loader, BlockLoader)
        found = loaded_ids(world, loader)
        cuda.check()
    assert found == expected
