"""Seeds of torch: initial values, and generators that a checkpoint restores."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import nn

N = TypeVar("N", bound=nn.Module)


def seed_process(seed: int, epoch: int) -> None:
    """Seed the process's own random numbers of torch, on all devices.

    Our agents have generators of their own; custom networks draw from these (dropout).

    Args:
        seed: the run's.
        epoch: makes every start of the run draw otherwise.
    """
    torch.manual_seed(int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0]))


def restore_generator(generator: torch.Generator, state: torch.Tensor) -> None:
    """Continue from a generator's state; from that of another kind of device with other numbers,
    since none of its own continues them."""
    if state.shape == generator.get_state().shape:
        generator.set_state(state)
    else:
        generator.manual_seed(zlib.crc32(state.numpy().tobytes()))


def build_seeded(build: Callable[[], N], seed: int, device: str) -> N:
    """A network whose initial weights depend on the seed alone, whatever the device.

    The process's own random numbers are as before.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build().to(device)
