"""All parameters of a network as one vector, Adam on it, and their initial values from a seed.

Clipping, Adam, the target's update and the copy for the actors are then one operation each, however
many layers there are: a step of a small network is mostly the cost of starting operations.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from vedette_rl.core.learning import State
from vedette_rl.device import ranks
from vedette_rl.device.host_copy import HostCopy, Pending, settled, snapshot
from vedette_rl.errors import ModelMismatchError
from vedette_rl.storage.system import BufferPool

if TYPE_CHECKING:  # agents import networks
    from vedette_rl.settings.stored import ScheduleConfig

N = TypeVar("N", bound=nn.Module)

_ALIGNMENT = 16
"""Floats: every parameter begins on a cache line, as if it had been allocated by itself."""

_NEGLIGIBLE = 1e-30
"""Moments below this move nothing: the denominator is at least eps."""

_SWEEP_INTERVAL = 100
"""Steps: from `_NEGLIGIBLE` a first moment falls to 3e-35 meanwhile, which is still normal."""


class ParameterVector:
    """Moves a network's parameters into one vector, of which they are views from now on.

    Args:
        network: all its parameters are float32 and on one device. One that needs no gradient
            (``requires_grad=False``) is frozen: it travels and is saved like the others, and
            nothing here moves it.
        learns: whether the others have gradients, which are then views of `grad`.

    Attributes:
        data: the vector; what lies between two parameters is 0.
        grad: its gradient, of the same layout. Backward passes add to it; a frozen parameter's
            part stays 0.
        parameters: those that learn.
    """

    def __init__(self, network: nn.Module, *, learns: bool) -> None:
        parameters = dict(network.named_parameters())
        self._places: dict[str, tuple[int, int, torch.Size]] = {}
        end = 0
        for name, parameter in parameters.items():
            self._places[name] = (end, parameter.numel(), parameter.shape)
            end += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT
        self._memory = BufferPool()
        device = next(iter(parameters.values())).device
        self.data = torch.zeros(end, device=device)
        self.grad = torch.zeros(end if learns else 0, device=device)
        self._frozen = [name for name, p in parameters.items() if not p.requires_grad]
        grads = self.views(self.grad) if learns else {}
        for name, view in self.views(self.data).items():
            parameter = parameters[name]
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.requires_grad_(learns and parameter.requires_grad)
            parameter.grad = grads[name] if parameter.requires_grad else None
        self.parameters = [p for p in parameters.values() if p.requires_grad]

    def views(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parts of a vector of this layout, by parameter name."""
        return {
            name: vector[start : start + size].view(shape)
            for name, (start, size, shape) in self._places.items()
        }

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """A copy of the parameters in numpy, by name."""
        return self.pending_arrays().value

    def pending_arrays(self) -> Pending[dict[str, NDArray[np.float32]]]:
        """`arrays`, of a copy that is begun."""
        copy = snapshot(self.data, self._memory)
        return Pending(lambda: self._by_name(copy))

    def get(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """A copy on the CPU of a vector of this layout, by parameter name."""
        return self.pending(vector).value

    def pending(self, vector: torch.Tensor) -> Pending[dict[str, torch.Tensor]]:
        """`get`, of a copy that is begun."""
        copy = snapshot(vector, self._memory)
        return Pending(
            lambda: {name: torch.from_numpy(array) for name, array in self._by_name(copy).items()}
        )

    def _by_name(self, copy: HostCopy) -> dict[str, NDArray[np.float32]]:
        # Views are numpy's: torch takes ten times as long to make one.
        vector = copy.array()
        return {
            name: vector[start : start + size].reshape(shape)
            for name, (start, size, shape) in self._places.items()
        }

    def set(self, vector: torch.Tensor, named: Mapping[str, torch.Tensor]) -> None:
        """Write a vector of this layout in place.

        Raises:
            ModelMismatchError: names the first tensor that is missing or of another shape.
        """
        for name, view in self.views(vector).items():
            if name not in named:
                raise ModelMismatchError(name, f"shape {tuple(view.shape)}", "nothing")
            if named[name].shape != view.shape:
                raise ModelMismatchError(
                    name, f"shape {tuple(view.shape)}", f"shape {tuple(named[name].shape)}"
                )
            view.copy_(named[name])

    def frozen_views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """What a vector of this layout has for frozen parameters."""
        views = self.views(vector)
        return [views[name] for name in self._frozen]

    def copy_parts(self, other: ParameterVector, prefix: str) -> None:
        """Copy the parameters whose names begin with `prefix`: the first ones of both networks."""
        ours, theirs = (
            [(name, place) for name, place in vector._places.items() if name.startswith(prefix)]
            for vector in (self, other)
        )
        assert ours == theirs, "both networks have the same parts at the same places"
        end = max(start + size for _, (start, size, _) in ours)
        self.data[:end].copy_(other.data[:end])

    def soft_update(self, online: ParameterVector, tau: float) -> None:
        """Update a target network by Polyak averaging: theta' += tau (theta - theta'); 1 copies."""
        if tau == 1.0:
            self.data.copy_(online.data)
        else:
            self.data.lerp_(online.data, tau)


class VectorAdam:
    """Adam with the gradient's norm clipped first.

    ::

        adam.zero_grad()
        torch.autograd.backward(loss)
        grad_norm = adam.step()

    Args:
        vector: what is optimized.
        learning_rate: its step size.
        eps: what is added to the denominator.
        max_grad_norm: the gradient is scaled down to this norm; 0 is off.
        weight_decay: AdamW's (Loshchilov & Hutter 2019, arXiv:1711.05101); 0 is off.
        schedule: multiplies the step size; None leaves it as it is.
        interval: optimization steps of the agent between two steps here.
    """

    def __init__(
        self,
        vector: ParameterVector,
        *,
        learning_rate: float,
        eps: float = 1e-8,
        max_grad_norm: float = 0.0,
        weight_decay: float = 0.0,
        schedule: ScheduleConfig | None = None,
        interval: int = 1,
    ) -> None:
        self._vector = vector
        self._max_grad_norm = max_grad_norm
        self._steps = 0
        self._schedule, self._interval, self._base = schedule, interval, learning_rate
        device = vector.data.device
        self._rate = torch.full((), learning_rate, device=device)
        self._opt_steps = torch.zeros((), device=device)  # of the agent, where a schedule counts
        # AdamW's decay would move these, which have no gradient.
        self._held = vector.frozen_views(vector.data) if weight_decay else []
        scheduled = schedule is not None and schedule.changes
        self._tensors = AdamTensors(
            self._rate if scheduled else learning_rate,
            eps,
            weight_decay,
            vector.data,
            vector.grad,
            torch.zeros_like(vector.data),
            torch.zeros_like(vector.data),
            torch.zeros((), device=device),
        )
        self._update = self._tensors.update()

    def zero_grad(self) -> None:
        """Zero the gradient, before a backward pass adds to it."""
        self._tensors.grad.zero_()

    def step(self) -> None:
        """Clip the gradient, and move the parameters."""
        self.move()
        self.count()

    @torch.no_grad()
    def move(self) -> None:
        """The part of `step` that a captured step contains: tensors alone."""
        grad = self._tensors.grad
        ranks.average(grad)
        clip = None
        if self._max_grad_norm:
            clip = (torch.dot(grad, grad).sqrt_() / self._max_grad_norm).clamp_(min=1.0)
        if self._schedule is not None and self._schedule.changes:
            # on the device, so that nothing waits and a captured step computes it anew
            self._opt_steps += self._interval
            factor = schedule_factor(self._schedule, self._opt_steps)
            torch.mul(factor, self._base, out=self._rate)
        held = [(view, view.clone()) for view in self._held]
        self._update(clip)
        for view, before in held:
            view.copy_(before)

    def count(self) -> None:
        """The rest of `step`: count it, and tidy up now and then."""
        self._steps += 1
        if self._steps % _SWEEP_INTERVAL == 0:
            self._flush_negligible()

    @torch.no_grad()
    def _flush_negligible(self) -> None:
        # The moments of a dead unit decay until they are denormal, and a CPU adds those twenty
        # times slower than other numbers: 1.3 ms a step in place of 0.06 on 68,000 parameters.
        for moment in self._tensors.moments:
            torch.hardshrink(moment, _NEGLIGIBLE, out=moment)

    def grad_norm(self) -> torch.Tensor:
        """The gradient's norm: before `step` as it was, after it as it was clipped."""
        norm: torch.Tensor = self._tensors.grad.norm()
        return norm

    def get_state(self) -> State:
        """The moments by parameter name, and the step counter. Copies on the CPU."""
        return settled(self.pending_state())

    def pending_state(self) -> State:
        """`get_state`, of copies that are begun."""
        exp_avg, exp_avg_sq = self._tensors.moments
        return {
            "step": self._steps,
            "exp_avg": self._vector.pending(exp_avg),
            "exp_avg_sq": self._vector.pending(exp_avg_sq),
        }

    def set_state(self, state: State, opt_steps: int | None = None) -> None:
        """Continue from these moments.

        Args:
            opt_steps: of the agent, for the schedule; None: as many as the steps here took.
        """
        self._steps = state["step"]
        done = self._steps * self._interval if opt_steps is None else opt_steps
        self._opt_steps.fill_(done - done % self._interval)
        self._tensors.step.fill_(self._steps)
        for moment, name in zip(self._tensors.moments, ("exp_avg", "exp_avg_sq"), strict=True):
            self._vector.set(moment, state[name])
            # A parameter may have been frozen since: its first moment would go on moving it.
            for frozen in self._vector.frozen_views(moment):
                frozen.zero_()


def schedule_factor(schedule: ScheduleConfig, step: torch.Tensor) -> torch.Tensor:
    """The factor of the step size at an optimization step, counted from 1: a scalar of its device.

    It grows from 0 to 1 in `warmup_opts` steps, and then falls to `final` until `total_opts`: in a
    line, or along half a cosine (Loshchilov & Hutter 2017, arXiv:1608.03983, equation 5).
    """
    factor = (step / max(schedule.warmup_opts, 1)).clamp(max=1.0)
    if schedule.kind == "constant":
        return factor
    progress = ((step - schedule.warmup_opts) / (schedule.total_opts - schedule.warmup_opts)).clamp(
        0.0, 1.0
    )
    if schedule.kind == "cosine":
        progress = 0.5 - 0.5 * (math.pi * progress).cos()
    return factor * (1.0 - (1.0 - schedule.final) * progress)


@dataclass(frozen=True, slots=True)
class AdamTensors:
    """What a step of Adam reads and moves in place.

    Args:
        learning_rate: its step size; a tensor where a schedule changes it.
        eps: what is added to the denominator.
        weight_decay: AdamW's; 0 is off.
        parameter, grad, exp_avg, exp_avg_sq: vectors of one layout.
        step: steps done.
    """

    learning_rate: float | torch.Tensor
    eps: float
    weight_decay: float
    parameter: torch.Tensor
    grad: torch.Tensor
    exp_avg: torch.Tensor
    exp_avg_sq: torch.Tensor
    step: torch.Tensor

    @property
    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both of them."""
        return self.exp_avg, self.exp_avg_sq

    def update(self) -> Callable[[torch.Tensor | None], None]:
        """Return the function that does a step.

        Its argument, where it is not None, divides the gradient first.

        `torch.optim.Adam(fused=True)` ends in the same fused call, 0.2 ms of bookkeeping later: a
        fifth of a small network's optimization step. But the call is private: where the installed
        torch has none of it for this device, or with other arguments, its own optimizer does the
        steps.
        """
        trial = torch.zeros(5, 1, device=self.parameter.device)
        names = ("parameter", "grad", "exp_avg", "exp_avg_sq")
        vectors = dict(zip(names, trial, strict=False))
        try:
            replace(self, **vectors, step=trial[4])._fused_step(None)
        except (AttributeError, TypeError, RuntimeError):
            return self._optimizer_step()
        return self._fused_step

    def _fused_step(self, clip: torch.Tensor | None) -> None:
        self.step.add_(1)
        fused = torch._fused_adamw_ if self.weight_decay else torch._fused_adam_
        fused(
            [self.parameter],
            [self.grad],
            [self.exp_avg],
            [self.exp_avg_sq],
            [],
            [self.step],
            lr=self.learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
            grad_scale=clip,
        )

    def _optimizer_step(self) -> Callable[[torch.Tensor | None], None]:
        leaf = self.parameter.detach()  # the same memory
        leaf.grad = self.grad
        kind = torch.optim.AdamW if self.weight_decay else torch.optim.Adam
        adam = partial(
            kind, [leaf], lr=self.learning_rate, eps=self.eps, weight_decay=self.weight_decay
        )
        capturable = leaf.device.type == "cuda"
        try:
            optimizer = adam(fused=True, capturable=capturable)
        except RuntimeError:  # not on this device
            optimizer = adam(foreach=False, capturable=capturable)
        moments = {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}
        optimizer.state[leaf] = {"step": self.step, **moments}

        def update(clip: torch.Tensor | None) -> None:
            if clip is not None:
                self.grad.div_(clip)
            optimizer.step()

        return update


def seed_process(seed: int, epoch: int) -> None:
    """Seed the process's own random numbers of torch, on all devices.

    Our agents have generators of their own; networks of the user's own draw from these (dropout).

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
