"""A stand-in for CUDA on the CPU, stricter than CUDA: streams, events, graphs and the allocator.

Work is done when it is given, in the order in which it is given. But what a GPU may do in another
order is known: each stream has a clock and the clocks of others that it has waited for, and so has
the host. What reads or writes memory without having waited for the last one who did is an error, as
are a wait in a capture, memory that is used again too early, pinned memory that is changed before
it is copied, and what a failed capture leaves behind. Events are never reached by themselves, only
when somebody waits for them: nothing may rely on a fast device.

::

    with StrictCuda(monkeypatch) as cuda:
        agent.capture_by(CudaCapture(CPU, agent.generators))
        ...
        cuda.check()

Not here: kernels, other devices' memory, several threads that give work.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import warnings
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
from recorded_operations import Recording, place_of, tensors_in, written_by  # beside this file
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from vedette_rl.device import host_copy

WAITS = {
    "aten._local_scalar_dense.default",
    "aten.nonzero.default",
    "aten.equal.default",
    "aten.masked_select.default",
    "aten._unique2.default",
}
"""Operations of whose result the host reads something, so that it waits for the GPU."""

Clock = dict[int, int]
"""Of each stream, by its number: so much of its work is done."""


class CudaRuleError(AssertionError):
    """A rule of CUDA, or of this project's use of it, is broken."""


@dataclass(slots=True)
class _Use:
    """The last uses of some memory.

    Args:
        alive: the memory; expired once nobody has it.
        home: the stream on which it was allocated.
        written: the stream and time of the last write.
        read: the time of the last read since then, by stream.
    """

    alive: StorageWeakRef
    home: int
    written: tuple[int, int]
    read: Clock = field(default_factory=dict)

    @property
    def all(self) -> Clock:
        stream, time = self.written
        return {**self.read, stream: max(time, self.read.get(stream, 0))}


@dataclass(slots=True, eq=False)
class _PinnedCopy:
    """A copy from pinned memory that the host does not know to be done."""

    stream: int
    time: int
    pinned: torch.Tensor
    content: torch.Tensor


class Generator(torch.Generator):
    """A generator of a GPU, which a failed capture leaves as it must not be."""

    made: ClassVar[weakref.WeakSet[Generator]] = weakref.WeakSet()

    def __new__(cls, device: str = "cpu") -> Generator:
        return super().__new__(cls)

    def __init__(self, device: str = "cpu") -> None:
        self.captures = False
        self.made.add(self)

    def graphsafe_set_state(self, state: torch.Generator) -> None:
        self.captures = False


class StrictCuda(TorchDispatchMode):
    """The calls of `torch.cuda` that this project makes; the CPU's tensors are those of a GPU.

    Args:
        monkeypatch: takes it away again.
        registers: graphs are told of generators, as in torch 2.6 to 2.10.
        in_flight: steps that the host may not have waited for, at most: a step is a replay from
            each pool of graphs.
        free_bytes: free memory of the GPU.
        graphs_on: the number of the device that graphs are captured on.

    Attributes:
        fails: the reason why the next captures fail at their end; "" if they do not.
        captured, replayed: the number of graphs, and of their replays.
        held: the graphs that somebody has.
        pinned_copies: copies from the host's pinned memory.
        empties: times that the allocator was told to give back what it keeps.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        registers: bool = True,
        in_flight: int | None = None,
        free_bytes: int = 10**12,
        graphs_on: int = 0,
    ) -> None:
        super().__init__()
        self.fails = ""
        self.captured = self.replayed = self.empties = self.pinned_copies = 0
        self.free_bytes = free_bytes
        self.device = 0
        self.graphs_on = graphs_on
        Generator.made = weakref.WeakSet()
        self.registers = registers
        self.host: Clock = {}
        self.default_generator = Generator()
        self._in_flight = in_flight
        self.held: weakref.WeakSet[NewGraph] = weakref.WeakSet()
        self._flying: defaultdict[object, deque[tuple[int, int]]] = defaultdict(deque)
        self._streams = 0
        self._thread = threading.get_ident()
        self._lock = threading.Lock()  # others wait for copies
        self._uses: dict[int, _Use] = {}
        self._shared: set[int] = set()  # memory that other streams than its home have used
        self._pinned: dict[int, StorageWeakRef] = {}
        self._copies: list[_PinnedCopy] = []
        self._mode: object = "default"
        self._capturing: Graph | None = None
        self._pools: set[object] = set()  # those that the allocator records into
        self._rests = False
        self.main = Stream.__new__(Stream)
        self.main.start(self)
        self.stream = self.main
        self._patch(monkeypatch)

    # What the mode sees

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        if self._rests or threading.get_ident() != self._thread:
            return func(*args, **kwargs)
        name = str(func)
        if name in WAITS or (name.startswith("aten.index") and _has_mask(args)):
            self.wait(name)
        if name == "aten.copy_.default":
            return self._copy(func, args, kwargs)
        given = tensors_in([*args, *kwargs.values()])
        written = written_by(func, args, kwargs) if given else []
        out = func(*args, **kwargs)
        places = {place_of(tensor) for tensor in given}
        fresh = [tensor for tensor in tensors_in(out) if place_of(tensor) not in places]
        if fresh or written:  # else it is a view
            if self._pinned and any(map(self._is_pinned, given)):
                raise CudaRuleError(f"{name} takes pinned memory of the host, not the GPU's")
            moved = {place_of(tensor) for tensor in written}
            read = [tensor for tensor in given if place_of(tensor) not in moved]
            self._work(name, read, written, fresh)
        return out

    def _copy(self, func: Any, args: Any, kwargs: Any) -> object:
        to, of = args[:2]
        waits_not = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
        if (self._is_pinned(to) or self._is_pinned(of)) and not waits_not:
            self.wait("a copy between host and GPU that blocks")
        out = func(*args, **kwargs)
        self._work("copy_", [of], [to], [])
        if self._is_pinned(of) and self._capturing is None:
            self.pinned_copies += 1
            copy = _PinnedCopy(self.stream.number, self.stream.at, of, _twin(of))
            self._copies.append(copy)
        return out

    def _work(
        self,
        name: str,
        read: list[torch.Tensor],
        written: list[torch.Tensor],
        fresh: list[torch.Tensor],
    ) -> None:
        """Count an operation on the current stream, and hold its accesses against the rules."""
        stream = self.stream
        if self._capturing is not None:
            if stream is not self._capturing.stream:
                raise CudaRuleError(f"{name}: given to another stream while one captures")
            return
        stream.at += 1
        if fresh:
            self._check_reuse(stream)
        for tensor in fresh:
            place = place_of(tensor)
            alive = StorageWeakRef(tensor.untyped_storage())
            self._uses[place] = _Use(alive, stream.number, (stream.number, stream.at))
            self._shared.discard(place)
        for tensor in read:
            use = self._use_of(tensor)
            self._require(stream, dict([use.written]), f"{name} reads memory that is written")
            use.read[stream.number] = stream.at
        for tensor in written:
            use = self._use_of(tensor)
            self._require(stream, use.all, f"{name} writes memory that is used")
            use.written = stream.number, stream.at
            use.read = {}

    def _use_of(self, tensor: torch.Tensor) -> _Use:
        place = place_of(tensor)
        use = self._uses.get(place)
        if use is None or use.alive.expired():  # it was there before this stand-in
            alive = StorageWeakRef(tensor.untyped_storage())
            use = self._uses[place] = _Use(alive, self.main.number, (self.main.number, 0))
            self._shared.discard(place)
        if self.stream.number != use.home:
            self._shared.add(place)
        return use

    def _check_reuse(self, stream: Stream) -> None:
        """The allocator gives memory that is free to its home stream again, without a wait."""
        for place in [*self._shared]:
            use = self._uses[place]
            if use.alive.expired() and use.home == stream.number:
                self._require(stream, use.all, "memory is given away that is used")
                self._shared.discard(place)
                del self._uses[place]

    def _require(self, stream: Stream, clock: Clock, what: str) -> None:
        for other, time in clock.items():
            known = max(stream.knows.get(other, 0), self.host.get(other, 0))
            if other != stream.number and known < time:
                raise CudaRuleError(
                    f"{what} on stream {other}; stream {stream.number} has not waited"
                )

    @property
    def is_capturing(self) -> bool:
        """True while work is recorded."""
        return self._capturing is not None

    # What the host does

    def wait(self, what: str) -> None:
        """The host waits for the current stream."""
        if self._capturing is not None:
            self._capturing.invalid = f"operation not permitted when stream is capturing: {what}"
            raise RuntimeError(f"CUDA error: {self._capturing.invalid}\nmore of it")
        if self._mode == "error":
            raise CudaRuleError(f"the host waits for the device: {what}")
        if self._mode == "warn":
            warnings.warn(
                f"called a synchronizing CUDA operation (Triggered by {what})", stacklevel=3
            )
        self.learn({**self.stream.knows, self.stream.number: self.stream.at})

    def learn(self, clock: Clock) -> None:
        """The host knows that so much is done."""
        with self._lock:
            _merge(self.host, clock)
            done = [copy for copy in self._copies if self.host.get(copy.stream, 0) >= copy.time]
            self._copies = [copy for copy in self._copies if copy not in done]
        if not all(map(self._same, done)):
            raise CudaRuleError("pinned memory was changed before it was copied")

    def _same(self, copy: _PinnedCopy) -> bool:
        with self.resting():
            return torch.equal(_twin(copy.pinned), copy.content)

    def synchronize(self) -> None:
        """The host waits for all streams; the tests do so before they read."""
        assert self._capturing is None
        for stream in [*self._made]:
            self.learn({stream.number: stream.at})

    def replay(self, graph: Graph) -> None:
        """Begin a graph on the current stream."""
        if self._capturing is not None:
            raise CudaRuleError("a graph is replayed in a capture")
        if graph.recording is None:
            raise CudaRuleError("a graph is replayed that was not captured")
        self.replayed += 1
        for call in graph.recording.calls:
            call()
        self._flying[graph.pool].append((self.stream.number, self.stream.at))
        if self._in_flight is not None and self._steps_in_flight() > self._in_flight:
            raise CudaRuleError(f"more than {self._in_flight} steps in flight")

    def _steps_in_flight(self) -> int:
        """Replays of the pool that has fewest, of which the host does not know that they are done:
        where a batch is gathered by a graph, too, that of the next step may be."""
        for flying in self._flying.values():
            while flying and self.host.get(flying[0][0], 0) >= flying[0][1]:
                flying.popleft()
        return min(len(self._flying[graph.pool]) for graph in self.held)

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Do what is no work of the GPU."""
        before, self._rests = self._rests, True
        try:
            yield
        finally:
            self._rests = before

    def check(self) -> None:
        """Raise for what was left behind."""
        self.synchronize()
        if self.stream is not self.main:
            raise CudaRuleError("another stream than before is current")
        if self.device != 0:
            raise CudaRuleError("another device than before is current")
        if self._pools:
            raise CudaRuleError("the allocator still records a capture")
        if self._mode != "default":
            raise CudaRuleError("the debug mode of waits is still set")
        if any(generator.captures for generator in Generator.made):
            raise CudaRuleError("a generator still captures")

    # Graphs

    @contextlib.contextmanager
    def capture(self, graph: Graph, pool: object, stream: Stream) -> Iterator[None]:
        """Record what is given to a stream, as `torch.cuda.graph` does, its faults included."""
        if self.device != self.graphs_on:
            raise CudaRuleError("a capture is begun while another device is current")
        if self._pools:
            raise RuntimeError("a capture is begun while the allocator still records one")
        made = [torch.default_generator, *Generator.made]
        generators = {generator: generator.get_state() for generator in made}
        known = {self.default_generator, *graph.registered}
        before = self.stream
        self.synchronize()
        self.stream = stream
        self._capturing = graph
        self._pools.add(pool)
        graph.stream = stream
        graph.invalid = self.fails
        for generator in known:
            generator.captures = True
        recording = Recording()
        try:
            with recording:
                yield
        finally:
            self._capturing = None
            with self.resting():
                recording.put_back()
                drawn = {
                    g for g, state in generators.items() if not torch.equal(g.get_state(), state)
                }
                for generator, state in generators.items():
                    generator.set_state(state)
            if graph.invalid:
                # As torch's own: the stream stays current, the allocator records on.
                why = self.fails or "operation failed due to a previous error during capture"
                raise RuntimeError(f"CUDA error: {why}\nmore of it")
            self._pools.discard(pool)
            self.stream = before
            for generator in known:
                generator.captures = False
        if self.registers and drawn - known - {torch.default_generator}:
            raise CudaRuleError("a captured step draws from a generator that is not registered")
        graph.recording = recording
        graph.pool = pool
        self.held.add(graph)
        self.captured += 1

    def end_pool(self, device: int, pool: object) -> None:
        """End what the allocator records, where torch's own end of a capture has not done it."""
        if pool not in self._pools:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self._pools.discard(pool)

    # Memory of the host

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note that this is pinned memory."""
        self._pinned[place_of(tensor)] = StorageWeakRef(tensor.untyped_storage())
        return tensor

    def _is_pinned(self, tensor: object) -> bool:
        if not isinstance(tensor, torch.Tensor):
            return False
        ref = self._pinned.get(place_of(tensor))
        return ref is not None and not ref.expired()

    def read_on_host(self, tensor: torch.Tensor) -> None:
        """The host reads or writes memory."""
        use = self._uses.get(place_of(tensor))
        if self._rests or use is None or use.alive.expired():
            return
        stream, time = use.written
        if self.host.get(stream, 0) < time:
            raise CudaRuleError("the host reads memory before the copy to it is done")

    # torch.cuda

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        signature = inspect.signature(torch.cuda.graph.__init__)
        cuda = self

        def graph(*arguments: Any, **keywords: Any) -> Any:
            signature.bind(None, *arguments, **keywords)
            assert keywords["capture_error_mode"] == "thread_local"
            return cuda.capture(arguments[0], keywords["pool"], keywords["stream"])

        @contextlib.contextmanager
        def device(wanted: torch.device) -> Iterator[None]:
            before = cuda.device
            cuda.device = wanted.index if wanted.index is not None else before
            try:
                yield
            finally:
                cuda.device = before

        @contextlib.contextmanager
        def current(stream: Stream) -> Iterator[None]:
            before = cuda.stream
            cuda.stream = stream
            try:
                yield
            finally:
                cuda.stream = before

        def set_mode(mode: object) -> None:
            cuda._mode = mode

        def set_stream(stream: Stream) -> None:
            cuda.stream = stream

        def empty_cache() -> None:
            cuda.empties += 1

        pools = iter(range(10**9))
        self._made: weakref.WeakSet[Stream] = weakref.WeakSet([self.main])
        for name, value in {
            "CUDAGraph": lambda: Graph(cuda) if cuda.registers else NewGraph(cuda),
            "Stream": lambda device=None: Stream(cuda),
            "current_stream": lambda device=None: cuda.stream,
            "default_generators": (self.default_generator,) * 2,
            "device": device,
            "empty_cache": empty_cache,
            "get_sync_debug_mode": lambda: cuda._mode,
            "graph": graph,
            "graph_pool_handle": lambda: (0, next(pools)),
            "mem_get_info": lambda device=None: (cuda.free_bytes, cuda.free_bytes),
            "set_stream": set_stream,
            "set_sync_debug_mode": set_mode,
            "stream": current,
        }.items():
            assert hasattr(torch.cuda, name)
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch.cuda, "Event", _event_class(self))
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", self.end_pool, raising=False)
        monkeypatch.setattr(torch, "Generator", Generator)
        monkeypatch.setattr(host_copy, "is_asynchronous", lambda device: True)
        host_copy._copies_aside.cache_clear()
        self._patch_memory(monkeypatch)

    def _patch_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        empty, to, numpy = torch.empty, torch.Tensor.to, torch.Tensor.numpy
        cuda = self

        def empty_pinned(*size: Any, pin_memory: bool = False, **keywords: Any) -> torch.Tensor:
            with cuda.resting() if pin_memory else contextlib.nullcontext():
                made: torch.Tensor = empty(*size, **keywords)
            return cuda.pin(made) if pin_memory else made

        def pinned(tensor: torch.Tensor) -> torch.Tensor:
            with cuda.resting():
                return cuda.pin(tensor.clone())

        def moved(tensor: torch.Tensor, *arguments: Any, **keywords: Any) -> torch.Tensor:
            if not cuda._is_pinned(tensor):
                result: torch.Tensor = to(tensor, *arguments, **keywords)
                return result
            copy = empty(tensor.shape, dtype=tensor.dtype)
            return copy.copy_(tensor, non_blocking=bool(keywords.get("non_blocking")))

        def read(tensor: torch.Tensor, *arguments: Any, **keywords: Any) -> Any:
            cuda.read_on_host(tensor)
            return numpy(tensor, *arguments, **keywords)

        monkeypatch.setattr(torch, "empty", empty_pinned)
        monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
        monkeypatch.setattr(torch.Tensor, "to", moved)
        monkeypatch.setattr(torch.Tensor, "numpy", read)


class Stream:
    """A stream: its own clock, and the times of others that it has waited for."""

    def __init__(self, cuda: StrictCuda) -> None:
        self.start(cuda)
        cuda._made.add(self)

    def start(self, cuda: StrictCuda) -> None:
        self.cuda = cuda
        self.at = 0
        self.knows: Clock = {}
        self.number = cuda._streams
        cuda._streams += 1

    def wait_stream(self, other: Stream) -> None:
        _merge(self.knows, {**other.knows, other.number: other.at})

    def wait_event(self, event: Event) -> None:
        _merge(self.knows, event.clock)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event(self.cuda)
        event.record(self)
        return event


class Event:
    """The times of all streams behind which it lies; never reached by itself."""

    def __init__(self, cuda: StrictCuda) -> None:
        self._cuda = cuda
        self.clock: Clock = {}

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or self._cuda.stream
        self.clock = {**stream.knows, stream.number: stream.at}

    def query(self) -> bool:
        return all(self._cuda.host.get(stream, 0) >= at for stream, at in self.clock.items())

    def synchronize(self) -> None:
        self._cuda.learn(self.clock)


def _event_class(cuda: StrictCuda) -> type[Event]:
    class OfThis(Event):
        def __init__(self) -> None:
            super().__init__(cuda)

    return OfThis


class NewGraph:
    """A graph, of a torch that sees by itself which generators are used."""

    def __init__(self, cuda: StrictCuda) -> None:
        self._cuda = cuda
        self.registered: list[Generator] = []
        self.recording: Recording | None = None
        self.stream: Stream | None = None
        self.pool: object = None
        self.invalid = ""

    def replay(self) -> None:
        self._cuda.replay(self)  # type: ignore[arg-type]  # both kinds of it


class Graph(NewGraph):
    """A graph that is told of the generators."""

    def register_generator_state(self, generator: Generator) -> None:
        if self._cuda.device != self._cuda.graphs_on:
            raise CudaRuleError("a generator's state is made on another device than the graph's")
        self.registered.append(generator)


def _merge(clock: Clock, other: Clock) -> None:
    for stream, time in other.items():
        clock[stream] = max(time, clock.get(stream, 0))


def _twin(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the bytes."""
    return tensor.detach().contiguous().view(torch.uint8).clone()


def _has_mask(args: Any) -> bool:
    return any(tensor.dtype == torch.bool for tensor in tensors_in(args[1:2]))
