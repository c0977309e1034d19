"""An agent's optimization step as a function of tensors alone, which a GPU replays as one graph.

A small network's step is some hundred kernels of microseconds, and starting them one by one from
Python takes several times as long as they run; a CUDA graph starts all of them at once
(`vedette_rl.device.cuda_graphs`). It runs no Python. So a step is a function of tensors, and its
few decisions (`Due`) are made outside: each combination is a graph of its own.

::

    class MyAgent(SteppedAgent):
        adam: VectorAdam

        def step(self, batch, weights, due):
            loss = ...
            self.adam.zero_grad()
            torch.autograd.backward(loss)
            self.adam.move()
            return StepResult(td_errors, {"loss": loss.detach()} if due.record else {})

    agent.capture_by(CudaCapture(device, agent.generators))     # without it, steps run as they are
    agent.opt(batch)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import nn

from vedette_rl.core.learning import OptResult, StaticBatch
from vedette_rl.device import ranks
from vedette_rl.device.cuda_graphs import Capture, CapturedWork, NotCapturableError
from vedette_rl.device.host_copy import DeviceScalars

log = logging.getLogger("vedette.trainer")

Batch = Mapping[str, torch.Tensor]

LEFT_OUT = "steps_left_out"
"""The scalar that counts optimization steps that moved nothing, because their gradient was not
finite or near the end of float32: since the start."""

_WEIGHTS = "weights"  # no column of a batch: the wire's are named by `vedette_rl.core.columns`


class Due(NamedTuple):
    """The parts of a step beside the descent of the first network that counting steps decides.

    Args:
        policy: the policy learns, of agents that have one.
        target: the target networks follow.
        record: scalars are computed.
        begins: the first minibatch of a block of runs.
        values: advantages and targets of the block are computed.
        ends: the last minibatch of a block.
    """

    policy: bool = False
    target: bool = False
    record: bool = False
    begins: bool = False
    values: bool = False
    ends: bool = False


class StepResult(NamedTuple):
    """The result of a step, on the device.

    Args:
        td_errors: absolute TD error of each sample ``(B,)``; None where an agent has none.
        record: scalars by name; empty unless they are due.
    """

    td_errors: torch.Tensor | None
    record: Mapping[str, torch.Tensor]


class _Outputs(NamedTuple):
    """A step's result as few tensors, at fixed addresses where it is captured."""

    td_errors: torch.Tensor | None
    names: tuple[str, ...]
    scalars: torch.Tensor | None

    @classmethod
    def of(cls, result: StepResult) -> _Outputs:
        names = tuple(result.record)
        scalars = torch.stack([result.record[name].detach() for name in names]) if names else None
        return cls(result.td_errors, names, scalars)


class CapturedStep:
    """Runs a step: captures it once for each `Due`, and replays it.

    Args:
        step: reads nothing but its tensors, and moves what it moves in place.
        capture: records it.
        what: is captured, for the log.
    """

    def __init__(
        self,
        step: Callable[[Batch, torch.Tensor | None, Due], StepResult],
        capture: Capture,
        what: str,
    ) -> None:
        self._step = step
        self._capture = capture
        self._what = what
        self._inputs: StaticBatch | None = None
        self._kinds: dict[Due, tuple[CapturedWork, list[_Outputs]]] = {}
        self.reason = ""
        """Why steps are not captured; "" while they are."""

    def __call__(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> _Outputs:
        """The result of a step; what was captured is overwritten by the next one of its kind."""
        given = batch if weights is None else {**batch, _WEIGHTS: weights}
        if self._inputs is None:
            # A static batch lies at fixed addresses already.
            held = given if isinstance(batch, StaticBatch) else _clones(given)
            self._inputs = StaticBatch(held)
        if self.reason or not self._fill(given):
            return _Outputs.of(self._step(batch, weights, due))
        if due not in self._kinds:
            self._kinds[due] = self._work_of(due)
        work, outputs = self._kinds[due]
        try:
            work()
        except NotCapturableError as error:
            self.give_up(str(error))
        (result,) = outputs
        return result

    @property
    def kinds_captured(self) -> int:
        """The number of kinds of steps that are replayed."""
        return sum(work.is_captured for work, _ in self._kinds.values())

    def _fill(self, given: Batch) -> bool:
        """Bring a batch to the step's own input tensors; False where it has another form."""
        assert self._inputs is not None, "made by the first step"
        if given.keys() != self._inputs.keys():
            return False
        for name, tensor in self._inputs.items():
            if given[name] is not tensor:
                if given[name].shape != tensor.shape:
                    return False
                tensor.copy_(given[name], non_blocking=True)
        return True

    def _work_of(self, due: Due) -> tuple[CapturedWork, list[_Outputs]]:
        """The work of a kind of step on the input tensors, and where its result is put."""
        held = dict(self._inputs or {})
        weights = held.pop(_WEIGHTS, None)
        outputs: list[_Outputs] = []

        def work() -> None:
            outputs[:] = [_Outputs.of(self._step(held, weights, due))]

        return CapturedWork(work, self._capture), outputs

    def give_up(self, reason: str) -> None:
        """Run steps as they are from now on, and log why."""
        self.reason = reason
        self._kinds.clear()
        log.warning(
            "%s: optimization steps are not captured, they run one operation after the other: %s",
            self._what,
            reason,
        )


def _clones(batch: Batch) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in batch.items()}


class Optimizer(Protocol):
    """The part of an optimizer that counts: `vedette_rl.networks.VectorAdam`."""

    def count(self) -> None:
        """Count a step that was done."""
        ...


class SteppedAgent:
    """An `Agent`'s `opt`, around a `step` that a GPU may replay.

    Attributes:
        opt_steps: optimization steps done, over all epochs of the run.
        generators: all random numbers of `step` that are not torch's own.
        networks: those of `step`, which may be compiled or compute in bfloat16.
    """

    opt_steps: int = 0
    networks: tuple[nn.Module, ...] = ()
    generators: tuple[torch.Generator, ...] = ()
    _captured: CapturedStep | None = None

    def step(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> StepResult:
        """One optimization step, of fixed shapes: no decision by counters or values of tensors.

        Args:
            batch, weights: as `Agent.opt` has them.
            due: the other parts to be done.
        """
        raise NotImplementedError

    def due(self, *, record: bool) -> Due:
        """Return the parts that are due in the next step."""
        raise NotImplementedError

    def optimizers(self, due: Due) -> Sequence[Optimizer]:
        """The optimizers that have done a step, where this was due."""
        raise NotImplementedError

    def capture_by(self, capture: Capture) -> None:
        """Replay steps that were captured from now on."""
        self._captured = CapturedStep(self.step, capture, type(self).__name__)

    def stop_capturing(self, reason: str) -> bool:
        """Run steps as they are from now on; returns False if they did so already."""
        captured = self._captured
        if captured is None or captured.reason:
            return False
        captured.give_up(reason)
        return True

    def opt(
        self, batch: Batch, weights: torch.Tensor | None = None, *, record: bool = False
    ) -> OptResult:
        """One optimization step. See `vedette_rl.core.learning.Agent.opt`."""
        due = self.due(record=record)
        if self._captured is None:
            td_errors, names, scalars = _Outputs.of(self.step(batch, weights, due))
        else:
            td_errors, names, scalars = self._captured(batch, weights, due)
        self.opt_steps += 1
        for optimizer in self.optimizers(due):  # here: a replayed graph runs no Python that counts
            optimizer.count()
        if weights is not None and td_errors is not None:
            td_errors = ranks.gather(td_errors)
        if scalars is not None:
            ranks.average(scalars)
        found = {} if scalars is None else DeviceScalars(names, scalars, totals={LEFT_OUT})
        return OptResult(td_errors, found)
