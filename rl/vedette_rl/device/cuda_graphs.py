"""Work of a device on fixed tensors, recorded as CUDA graphs and replayed.

To start an operation takes Python several microseconds, and a small operation's kernel runs no
longer. A CUDA graph starts all kernels of some work at once. It holds addresses: what the work
reads and writes must lie where it lay, and nothing that Python decides happens again. The first
times the work runs as it is, which is the warm-up that libraries need; then it is captured, and
from then on replayed.

::

    total = torch.zeros((), device=device)
    value = torch.empty((), device=device)

    def add() -> None:
        total.add_(value)

    work = CapturedWork(add, CudaCapture(device))
    while training:
        value.copy_(batch["reward"].sum())
        work()
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import torch

ReplayGraph = Callable[[], None]

WARM_TIMES = 3
"""Times that work runs as it is before it is captured (PyTorch's notes on CUDA)."""


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
    """Work that cannot be captured, with the reason."""


class CudaCapture:
    """CUDA graphs, which share one pool of memory: they never run at the same time.

    Args:
        device: the device of the work.
        generators: all random numbers of the work that are not torch's own.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator] = ()) -> None:
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


class CapturedWork:
    """Work that is recorded at its fourth time, and replayed from then on.

    Args:
        work: reads and writes tensors that stay where they are.
        capture: records it.
    """

    def __init__(self, work: Callable[[], None], capture: Capture) -> None:
        self._work = work
        self._capture = capture
        self._ran = 0
        self._replay: ReplayGraph | None = None

    @property
    def is_captured(self) -> bool:
        """True once it is replayed."""
        return self._replay is not None

    def __call__(self) -> None:
        """Do it: as it is, or by a replay.

        Raises:
            NotCapturableError: it cannot be recorded. It is done, as it is.
            torch.OutOfMemoryError: the device has no room for it, or for its graph. It is not done.
        """
        if self._replay is None:
            self._ran += 1
            if self._ran <= WARM_TIMES:
                self._capture.warm_up(self._work, last=self._ran == WARM_TIMES)
                return
            try:
                self._replay = self._capture.record(self._work)
            except NotCapturableError:
                self._work()  # what failed has done nothing
                raise
        self._replay()
