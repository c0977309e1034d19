"""Adam over one vector of parameters, and its learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from vedette_rl.core.learning import State
from vedette_rl.device import host_copy, ranks
from vedette_rl.device.host_copy import Pending, read_later, settled
from vedette_rl.networks.parameter_vector import ParameterVector

if TYPE_CHECKING:
    from vedette_rl.settings.stored import ScheduleConfig


_BETA2 = 0.999
"""The decay of the second moment, Adam's own."""

_NEGLIGIBLE = 1e-30
"""Moments below this move nothing: the denominator is at least eps."""


_NORM_MAX = 1e18
"""The largest norm of a gradient. The second moments of a larger one, or of its sums over a batch,
are near the end of float32 or beyond it, and parameters of which they are infinite stand still for
good."""

_OUTLIER, _ALWAYS = 30.0, 10.0
"""A gradient whose norm is more than so many typical ones, and more than the second number, is an
outlier: the further it is beyond this limit, the smaller it counts, from the limit itself down to
one typical norm. So a good sample with a large reward is learned from, and a broken one, however
often it is drawn, moves the weights no more than others do. The second number is for rewards that
are 0 until they are not: eps would swallow a multiple of tiny norms."""

_NORM_INTERVAL = 10
"""Steps from one look at the norm to the next."""

_SWEEP_INTERVAL = 100
"""Steps: from `_NEGLIGIBLE` a first moment falls to 3e-35 meanwhile, which is still normal."""


class VectorAdam:
    """Adam with the gradient's norm clipped first.

    One broken sample, which is drawn again and again, must not end what others teach. So a gradient
    beyond the limit of `_OUTLIER` typical norms is scaled down to limit^2 / norm, and not below one
    typical norm, which is that which half of the steps exceed, however large they are. And one that
    is not finite, or larger than `_NORM_MAX`, moves nothing, neither parameters nor moments. Such
    steps are counted in `left_out`.

    ::

        adam.zero_grad()
        torch.autograd.backward(loss)
        grad_norm = adam.step()

    Args:
        vector: the parameters that are optimized.
        learning_rate: the step size.
        beta1: the decay of the first moment.
        eps: the number added to the denominator.
        max_grad_norm: the gradient is scaled down to this norm; 0 is off.
        weight_decay: AdamW's (Loshchilov & Hutter 2019, arXiv:1711.05101); 0 is off.
        schedule: multiplies the step size; None leaves it as it is.
        interval: optimization steps of the agent between two steps here.

    Attributes:
        left_out: steps that moved nothing since this object was made; on the device.
    """

    def __init__(
        self,
        vector: ParameterVector,
        *,
        learning_rate: float,
        beta1: float = 0.9,
        eps: float = 1e-8,
        max_grad_norm: float = 0.0,
        weight_decay: float = 0.0,
        schedule: ScheduleConfig | None = None,
        interval: int = 1,
    ) -> None:
        self._vector = vector
        self._max_grad_norm = max_grad_norm
        self._steps = 0
        self._schedule = schedule if schedule is not None and schedule.changes else None
        self._interval = interval
        self._base = learning_rate
        device = vector.data.device
        self._rate = torch.full((), learning_rate, device=device)
        self.left_out = torch.zeros((), device=device)
        self._no, self._yes = torch.zeros((), device=device), torch.ones((), device=device)
        self._square = torch.zeros((), device=device)  # of the last gradient's norm
        self._typical = torch.zeros((), device=device)  # norm; 0: not known yet
        # The smallest and the largest norm of the first steps, which nothing limits yet.
        self._lowest = torch.full((), math.inf, device=device)
        self._highest = torch.zeros((), device=device)
        self._largest = torch.full((), max_grad_norm or math.inf, device=device)  # norm of a step
        self._limit = torch.full((), math.inf, device=device)  # beyond it a norm is an outlier
        # A CPU has the norm at once: most steps are then known to need neither clip nor check.
        self._on_host = device.type == "cpu" and not host_copy.is_asynchronous(device)
        self._as_it_is = 0.0
        self._set_as_it_is()
        # Of the agent, where a schedule counts; float32 would stand still at 2**24.
        self._opt_steps = torch.zeros((), dtype=torch.int64, device=device)
        # AdamW's decay would move these, which have no gradient.
        self._held = vector.frozen_views(vector.data) if weight_decay else []
        self._tensors = AdamTensors(
            self._rate if self._schedule is not None else learning_rate,
            beta1,
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
        torch.dot(grad, grad, out=self._square)
        clip: torch.Tensor | None = None
        leaves_out: torch.Tensor | None = None
        if not (self._on_host and self._square.item() < self._as_it_is):
            # not the other way round: what is no number is not below it either
            leaves_out = torch.where(self._square < _NORM_MAX**2, self._no, self._yes)
            self.left_out += leaves_out
            norm = self._square.sqrt()
            share = (self._limit / norm).clamp_(min=1.0 / _OUTLIER, max=1.0)
            clip = (norm / (share * self._limit).minimum(self._largest)).clamp_(min=1.0)
        if self._schedule is not None:
            # on the device, so that nothing waits and a captured step computes it again
            self._opt_steps += self._interval
            factor = schedule_factor(self._schedule, self._opt_steps)
            torch.mul(factor, self._base, out=self._rate)
        held = [(view, view.clone()) for view in self._held]
        self._update(clip, leaves_out)
        for view, before in held:
            view.copy_(before)

    def count(self) -> None:
        """The rest of `step`: count it, and tidy up now and then."""
        self._steps += 1
        if self._steps <= _NORM_INTERVAL:
            self._note_first_norm()
        if self._steps % _NORM_INTERVAL == 0:
            self._follow_norm()
        if self._steps % _SWEEP_INTERVAL == 0:
            self._flush_negligible()

    @torch.no_grad()
    def _note_first_norm(self) -> None:
        """Note the norm of one of the first steps. Behind the last of them, begin Adam's moments
        anew if one of the norms is beyond the limit that the others give: a broken sample that was
        stored before the training would leave moments with which all others stand still."""
        norm = self._square.sqrt()
        counts = norm < _NORM_MAX
        self._lowest.copy_(torch.where(counts, self._lowest.minimum(norm), self._lowest))
        self._highest.copy_(torch.where(counts, self._highest.maximum(norm), self._highest))
        if self._steps == _NORM_INTERVAL:
            limit = (_OUTLIER * self._lowest).clamp(min=_ALWAYS)
            largest = self._highest.clamp(max=self._max_grad_norm or math.inf)
            kept = torch.where(largest > limit, self._no, self._yes)
            for moment in self._tensors.moments:
                moment.mul_(kept)
            # `_follow_norm` takes this for the last norm, which may be a broken one
            self._square.copy_(torch.where(norm > limit, self._lowest.square(), self._square))

    @torch.no_grad()
    def _follow_norm(self) -> None:
        """Move the typical norm towards the last one, by a part of itself: a median, of which one
        step in so many, however large, is not a part."""
        norm = self._square.sqrt()
        nearer = 1.0 + max(0.05, 2.0 * _NORM_INTERVAL / self._steps)
        moved = torch.where(norm > self._typical, self._typical * nearer, self._typical / nearer)
        known = torch.where(self._typical > 0.0, moved, norm)
        self._typical.copy_(torch.where(norm.isfinite(), known, self._typical))
        self._set_limit()

    def _set_limit(self) -> None:
        """The norm beyond which a gradient is an outlier."""
        limit = (_OUTLIER * self._typical).clamp(min=_ALWAYS)
        self._limit.copy_(torch.where(self._typical > 0.0, limit, math.inf))
        self._set_as_it_is()

    def _set_as_it_is(self) -> None:
        """On a CPU, the square of a norm below which a gradient counts as it is, whatever the
        rounding of its root."""
        if self._on_host:
            largest = min(self._limit.item(), self._max_grad_norm or math.inf, _NORM_MAX)
            self._as_it_is = (0.99 * largest) ** 2

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
        norms = read_later(torch.stack([self._typical, self._lowest, self._highest]))
        return {
            "step": self._steps,
            "exp_avg": self._vector.pending(exp_avg),
            "exp_avg_sq": self._vector.pending(exp_avg_sq),
            "typical_norm": Pending(lambda: float(norms.array()[0])),
            "lowest_norm": Pending(lambda: min(float(norms.array()[1]), _NORM_MAX)),  # never inf
            "highest_norm": Pending(lambda: float(norms.array()[2])),
        }

    def set_state(self, state: State, opt_steps: int | None = None) -> None:
        """Continue from these moments.

        Args:
            opt_steps: the agent's optimization steps, for the schedule; None: as many as the steps
                here took.
        """
        self._steps = state["step"]
        self._typical.fill_(float(state.get("typical_norm", 0.0)))  # none before version 0.3
        lowest = float(state.get("lowest_norm", _NORM_MAX))
        self._lowest.fill_(lowest if lowest < _NORM_MAX else math.inf)
        self._highest.fill_(float(state.get("highest_norm", 0.0)))
        self._set_limit()
        done = self._steps * self._interval if opt_steps is None else opt_steps
        self._opt_steps.fill_(done - done % self._interval)
        self._tensors.step.fill_(self._steps)
        for moment, name in zip(self._tensors.moments, ("exp_avg", "exp_avg_sq"), strict=True):
            self._vector.set(moment, state[name])
            # A parameter may have been frozen since: its first moment would continue to move it.
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


UpdateStep = Callable[[torch.Tensor | None, torch.Tensor | None], None]
"""A step of Adam; see `AdamTensors.update`."""


@dataclass(frozen=True, slots=True)
class AdamTensors:
    """The tensors that a step of Adam reads and moves in place.

    Args:
        learning_rate: the step size; a tensor where a schedule changes it.
        beta1: the decay of the first moment.
        eps: the number added to the denominator.
        weight_decay: AdamW's; 0 is off.
        parameter, grad, exp_avg, exp_avg_sq: vectors of one layout.
        step: steps done.
    """

    learning_rate: float | torch.Tensor
    beta1: float
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

    def update(self) -> UpdateStep:
        """Return the function that does a step.

        Its first argument divides the gradient first. Where the second is 1, and not 0, nothing
        moves. None is the number that changes nothing.

        `torch.optim.Adam(fused=True)` ends in the same fused call, 0.2 ms of bookkeeping later: a
        fifth of a small network's optimization step. But the call is private: where the installed
        torch has none of it for this device, or one with other arguments, or one that takes them
        and does something else (Apple's GPUs ignore `grad_scale`, pytorch#186360), its own
        optimizer does the steps.
        """
        ways: tuple[Callable[[AdamTensors], UpdateStep], ...] = (
            lambda adam: adam._fused_step,
            lambda adam: adam._optimizer_step(fused=True),
        )
        for make in ways:
            try:
                if _steps_by_numbers(self, make):
                    return make(self)
            except torch.OutOfMemoryError:
                raise
            except (AttributeError, TypeError, RuntimeError):
                continue
        return self._optimizer_step(fused=False)

    def _fused_step(self, clip: torch.Tensor | None, leaves_out: torch.Tensor | None) -> None:
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
            beta1=self.beta1,
            beta2=_BETA2,
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
            grad_scale=clip,
            found_inf=leaves_out,
        )

    def _optimizer_step(self, *, fused: bool) -> UpdateStep:
        leaf = self.parameter.detach()  # the same memory
        leaf.grad = self.grad
        kind = torch.optim.AdamW if self.weight_decay else torch.optim.Adam
        optimizer = kind(
            [leaf],
            lr=self.learning_rate,
            betas=(self.beta1, _BETA2),
            eps=self.eps,
            weight_decay=self.weight_decay,
            capturable=leaf.device.type == "cuda",
            foreach=None if fused else False,
            fused=True if fused else None,
        )
        moments = {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}
        optimizer.state[leaf] = {"step": self.step, **moments}

        moved = (self.parameter, self.exp_avg, self.exp_avg_sq)

        def update(clip: torch.Tensor | None, leaves_out: torch.Tensor | None) -> None:
            if clip is not None:
                self.grad.div_(clip)
            if leaves_out is None:
                optimizer.step()
                return
            before = [tensor.clone() for tensor in moved]
            optimizer.step()
            for tensor, was in zip(moved, before, strict=True):
                tensor.copy_(torch.where(leaves_out.bool(), was, tensor))

        return update


def _steps_by_numbers(adam: AdamTensors, make: Callable[[AdamTensors], UpdateStep]) -> bool:
    """Return True if a way to do steps computes Adam's equations, with a gradient that is clipped,
    and moves nothing in a step that is left out: two steps of one number are tried."""
    device = adam.parameter.device
    learning_rate, divisor, steps = 0.5, 2.0, 3.0
    parameter, grad, exp_avg, exp_avg_sq = before = (0.75, 5.0, 0.25, 0.5)
    vectors = [torch.full((1,), value, device=device) for value in before]
    scalars = [torch.full((), value, device=device) for value in (divisor, 0.0, 1.0)]
    clip, no, yes = scalars
    scheduled = isinstance(adam.learning_rate, torch.Tensor)
    update = make(
        replace(
            adam,
            learning_rate=torch.full((), learning_rate, device=device)
            if scheduled
            else learning_rate,
            parameter=vectors[0],
            grad=vectors[1],
            exp_avg=vectors[2],
            exp_avg_sq=vectors[3],
            step=torch.full((), steps, device=device),
        )
    )
    moving = (vectors[0], vectors[2], vectors[3])
    update(clip, yes)
    found = [float(vector) for vector in moving]
    vectors[1].fill_(grad)  # some divide it in place
    update(clip, no)
    found += [float(vector) for vector in moving]

    expected = [parameter, exp_avg, exp_avg_sq]
    steps += 2  # the one that was left out counts
    grad /= divisor
    exp_avg = adam.beta1 * exp_avg + (1 - adam.beta1) * grad
    exp_avg_sq = _BETA2 * exp_avg_sq + (1 - _BETA2) * grad**2
    deviation = math.sqrt(exp_avg_sq / (1 - _BETA2**steps)) + adam.eps
    parameter *= 1 - learning_rate * adam.weight_decay
    parameter -= learning_rate * exp_avg / (1 - adam.beta1**steps) / deviation
    expected += [parameter, exp_avg, exp_avg_sq]
    pairs = zip(found, expected, strict=True)
    return all(math.isclose(ours, right, rel_tol=1e-4, abs_tol=1e-5) for ours, right in pairs)
