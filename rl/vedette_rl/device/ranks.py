"""Several processes, called ranks, that train one agent: each computes on its part of a batch.

All ranks hold the same weights, optimizers and random numbers. Gradients and statistics are
averaged, and random numbers are drawn for the whole batch, so that a step of all ranks is the step
that one process does on the whole batch, up to rounding; but batch normalization normalises each
rank's part by itself. A process that has not joined is the only rank: what is here gives back what
it takes, and costs nothing.

::

    join(device, rendezvous)            # in each process that torchrun has started
    torch.autograd.backward(loss)       # the mean over this rank's part
    average(vector.grad)                # of the whole batch
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from vedette_rl.errors import RankLostError

_FOREVER = timedelta(days=365)
"""A rank waits while actors fill the replay; one that dies closes its connections, which ends the
others."""
_LOOPBACK = "lo"


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train.

    Args:
        number: this rank's number, from 0; rank 0 draws, publishes, saves and records.
        count: the number of ranks.
    """

    number: int = 0
    count: int = 1

    def part(self, whole: int) -> slice:
        """This rank's rows of so many."""
        rows = whole // self.count
        return slice(self.number * rows, (self.number + 1) * rows)


_joined = Ranks()


def ranks() -> Ranks:
    """This process among those that train."""
    return _joined


def join(device: torch.device, rendezvous: Path) -> None:
    """Join the other ranks, whose number torchrun has put into the environment; waits for them.

    They talk over the loopback interface alone, and by NCCL from GPU to GPU.

    Args:
        device: the device that ranks train on; without a number each has a GPU of its own.
        rendezvous: a file of this start of all ranks.

    Raises:
        RankLostError: there are fewer GPUs than ranks.
    """
    global _joined
    number, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if str(device) == "cuda":
        if (gpus := torch.cuda.device_count()) < count:
            raise RankLostError(number, count, f"this host has {gpus} GPUs; lower learner.ranks")
        torch.cuda.set_device(number)
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", _LOOPBACK)
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=distributed.FileStore(str(rendezvous), count),  # type: ignore[attr-defined]  # it is public
        rank=number,
        world_size=count,
        timeout=_FOREVER,
    )
    _joined = Ranks(number, count)


def leave() -> None:
    """Close the connections to the other ranks, behind the last step; no graph of a step is kept,
    for NCCL waits for those that hold its operations."""
    global _joined
    gc.collect()
    if _joined.count > 1:
        distributed.destroy_process_group()
    _joined = Ranks()


def _together(operation: Callable[..., Any], *arguments: Any) -> None:
    try:
        operation(*arguments)
    except torch.OutOfMemoryError:
        raise  # of this rank alone
    except RuntimeError as error:
        why = re.sub(r"^\[\S+\] ", "", str(error)).partition(". ")[0]  # gloo's place in its source
        raise RankLostError(_joined.number, _joined.count, why) from error


def average(tensor: torch.Tensor) -> None:
    """Put the mean over all ranks in place of a tensor.

    Raises:
        RankLostError: another rank has ended; so do all that talk to others.
    """
    if _joined.count > 1:
        _together(distributed.all_reduce, tensor)
        tensor.div_(_joined.count)


def gather(part: torch.Tensor) -> torch.Tensor:
    """The parts ``(B, ...)`` of all ranks, one after another ``(count * B, ...)``."""
    if _joined.count == 1:
        return part
    whole = part.new_empty((_joined.count, *part.shape))
    _together(distributed.all_gather, list(whole.unbind()), part.contiguous())
    return whole.flatten(0, 1)


def broadcast(tensor: torch.Tensor) -> None:
    """Put rank 0's values in place of a tensor's."""
    _together(distributed.broadcast, tensor, 0)


def require_same(opt_steps: int) -> None:
    """Refuse to train with ranks that begin elsewhere.

    Raises:
        RankLostError: another rank has another number of optimization steps.
    """
    if _joined.count > 1:
        steps_of_ranks = gather(torch.tensor([opt_steps])).tolist()
        if len(set(steps_of_ranks)) > 1:
            why = f"they begin at different optimization steps: {steps_of_ranks}"
            raise RankLostError(_joined.number, _joined.count, why)


def var_mean(x_BF: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The variance and the mean ``(F,)`` of the whole batch, of each rank's part of it."""
    variance_F, mean_F = torch.var_mean(x_BF, dim=0, correction=0)
    if _joined.count == 1:
        return variance_F, mean_F
    variance_RF, mean_RF = gather(torch.stack([variance_F, mean_F])[None]).unbind(dim=1)
    between_F, mean_F = torch.var_mean(mean_RF, dim=0, correction=0)
    return variance_RF.mean(dim=0) + between_F, mean_F


def draw_rows(
    draw: Callable[..., torch.Tensor], shape: tuple[int, ...], generator: torch.Generator
) -> torch.Tensor:
    """Random numbers ``(B, ...)`` for this rank's part, of those for the whole batch.

    Args:
        draw: `torch.rand`, `torch.randn`, or another that takes a shape.
        shape: the shape of the part.
        generator: a generator in the same state on all ranks.
    """
    keywords: dict[str, Any] = {"generator": generator, "device": generator.device}
    if _joined.count == 1:
        return draw(shape, **keywords)
    whole = (shape[0] * _joined.count, *shape[1:])
    return draw(whole, **keywords)[_joined.part(whole[0])]
