"""Seeds of torch: initial values, and generators that a checkpoint restores."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from vedette_rl.core.learning import State

N = TypeVar("N", bound=nn.Module)


def seed_process(seed: int, epoch: int) -> None:
    """Seed the process's own random numbers of torch, on all devices.

    Our agents have generators of their own; custom networks draw from these (dropout).

    Args:
        seed: the run's.
        epoch: makes every start draw otherwise that no checkpoint tells how to go on.
    """
    torch.manual_seed(int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0]))


def process_state(device: torch.device) -> State:
    """The states of the process's own generators: of the CPU, and of the GPU that it trains on."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_process(state: State, device: torch.device) -> None:
    """Draw on from a state of `process_state`; what it does not have stays as it is."""
    if "cpu" in state:
        torch.set_rng_state(state["cpu"])
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


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
