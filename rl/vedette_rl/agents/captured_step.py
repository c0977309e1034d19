"""An agent's optimization step as a function of tensors alone, which a GPU replays as one graph.

A small network's step is some hundred kernels of microseconds, and starting them one by one from
Python takes several times as long as they run. A CUDA graph starts all of them at once. It holds
addresses: what it reads must lie where it lay, and nothing that Python decides happens again. So a
step is a function of tensors, and its few decisions (`Due`) are made outside: each combination is
a graph of its own. A combination's first steps run as they are, which is the warm-up that libraries
need; then it is captured, and from then on replayed.

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
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from vedette_rl.core.learning import OptResult, StaticBatch
from vedette_rl.device import ranks
from vedette_rl.device.host_copy import DeviceScalars

log = logging.getLogger("vedette.trainer")

Batch = Mapping[str, torch.Tensor]
ReplayGraph = Callable[[], None]

LEFT_OUT = "steps_left_out"
"""The scalar that counts optimization steps that moved nothing, because their gradient was not
finite or near the end of float32: since the start."""

_WARM_STEPS = 3
"""Steps of each kind that run as they are before one is captured (PyTorch's notes on CUDA)."""

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


class Capture(Protocol):
    """Records the work that a function gives a device."""

    def warm_up(self, work: Callable[[], None], *, last: bool) -> None:
        """Do it, where it will be recorded.

        Args:
            last: it is recorded next, so it is done as a replay will do it.

        Raises:
            NotCapturableError: the last one waits for the device, so that it cannot be recorded. It
                is done.
        """
        ...

    def record(self, work: Callable[[], None]) -> ReplayGraph:
        """Record it without doing it; returns what does it.

        Raises:
            NotCapturableError: it cannot be recorded. Nothing is done.
            torch.OutOfMemoryError: the device has no room for it. Nothing is done.
        """
        ...


class NotCapturableError(Exception):
    """A step that cannot be captured, with the reason."""


class CudaCapture:
    """CUDA graphs, which share one pool of memory: they never run at the same time.

    Args:
        device: the device of the step.
        generators: all random numbers of the step that are not torch's own.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator]) -> None:
        self._device = device
        self._generators = generators
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # untyped in torch
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, work: Callable[[], None], *, last: bool) -> None:
        """Do it on the stream of the captures; see `Capture`.

        The first times may wait: tables are built, networks compiled, caches filled.
        """
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        waits: list[str] = []
        try:
            with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
                if last:
                    waits = _waits_of(work)
                else:
                    work()
        finally:
            current.wait_stream(self._stream)
        if waits:
            raise NotCapturableError(f"it waits for the device at {waits[0]}")

    def record(self, work: Callable[[], None]) -> ReplayGraph:
        """Capture it; see `Capture`."""
        current = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        of_work: Exception | None = None
        try:
            # The device is current: torch 2.6 to 2.10 keep a generator's state on that one.
            with torch.cuda.device(self._device):
                self._register_generators(graph)
                # thread_local: other threads copy models and checkpoints meanwhile
                with torch.cuda.graph(
                    graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
                ):
                    try:
                        work()
                    except Exception as error:
                        of_work = error  # that of the capture's end would hide it
                        raise
        except Exception as error:
            self._leave_capture(current)
            cause = of_work or error
            if isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            raise NotCapturableError(str(cause).strip().partition("\n")[0]) from error
        replay: ReplayGraph = graph.replay
        return replay

    def _register_generators(self, graph: torch.cuda.CUDAGraph) -> None:
        """Have the graph draw new random numbers at each replay."""
        # Versions without it see by themselves which generators a capture uses.
        register = getattr(graph, "register_generator_state", None)
        if register is not None:
            for generator in self._generators:
                register(generator)

    def _leave_capture(self, current: torch.cuda.Stream) -> None:
        """Undo what a failed capture leaves behind: where ending it fails too, `torch.cuda.graph`
        leaves its stream current, the allocator recording, and the generators capturing."""
        torch.cuda.set_stream(current)
        index = self._device.index or 0
        end_pool: Any = getattr(torch._C, "_cuda_endAllocateToPool", None)
        if end_pool is not None:
            with suppress(RuntimeError):  # it has ended
                end_pool(index, self._pool)
        for generator in (torch.cuda.default_generators[index], *self._generators):
            generator.graphsafe_set_state(generator.clone_state())


def _waits_of(work: Callable[[], None]) -> list[str]:
    """Do it; returns the places where it made this thread wait for the device.

    Warnings and torch's debug mode are the process's: what they say of other threads is not of this
    work, and all other warnings go where they would have gone.
    """
    this_thread = threading.get_ident()
    waits: list[str] = []
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=f".*{_WAIT_WARNING}")
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        show = warnings.showwarning

        def hear(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: Any = None,
            line: str | None = None,
        ) -> None:
            if _WAIT_WARNING not in str(message):
                show(message, category, filename, lineno, file, line)
            elif threading.get_ident() == this_thread:
                waits.append(f"{filename}:{lineno}")

        warnings.showwarning = hear
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode(mode)
    return waits


_WAIT_WARNING = "synchronizing CUDA operation"


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
        self._ran: dict[Due, int] = {}
        self._replays: dict[Due, tuple[ReplayGraph, _Outputs]] = {}
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
        if due not in self._replays:
            return self._first(due)
        replay, outputs = self._replays[due]
        replay()
        return outputs

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

    def _first(self, due: Due) -> _Outputs:
        """One of the first steps of a kind: as it is, or captured and then replayed."""
        held = dict(self._inputs or {})
        weights = held.pop(_WEIGHTS, None)
        outputs: list[_Outputs] = []

        def work() -> None:
            outputs.append(_Outputs.of(self._step(held, weights, due)))

        ran = self._ran[due] = self._ran.get(due, 0) + 1
        try:
            if ran <= _WARM_STEPS:
                self._capture.warm_up(work, last=ran == _WARM_STEPS)
                return outputs[-1]
            replay = self._capture.record(work)
        except NotCapturableError as error:
            self.give_up(str(error))
            if ran > _WARM_STEPS:  # what failed has done nothing
                work()
            return outputs[-1]
        self._replays[due] = replay, outputs[-1]
        replay()
        return outputs[-1]

    def give_up(self, reason: str) -> None:
        """Run steps as they are from now on, and log why."""
        self.reason = reason
        self._replays.clear()
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
        return OptResult(td_errors, {} if scalars is None else DeviceScalars(names, scalars))
