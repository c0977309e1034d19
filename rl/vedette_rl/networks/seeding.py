"""Networks from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

N = TypeVar("N", bound=nn.Module)


def build_seeded(build: Callable[[], N], seed: int, device: str) -> N:
    """A network whose initial weights depend on the seed alone, whatever the device.

    The process's own random numbers are as before.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build().to(device)
