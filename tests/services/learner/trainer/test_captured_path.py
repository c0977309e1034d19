"""The path of a step on a GPU over a strict stand-in, and faults put into it: each is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from mutation import FunctionMutation
from strict_cuda import StrictCuda

from vedette_rl.agents.captured_step import CapturedStep, Due, SteppedAgent, StepResult
from vedette_rl.agents.iqn.agent import IqnAgent
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.core import Agent, State, empty_columns
from vedette_rl.core.protocols import implements
from vedette_rl.device import gathered, host_copy
from vedette_rl.device.cuda_graphs import CapturedWork, CudaCapture
from vedette_rl.device.loader import (
    CpuLoader,
    DeviceLoader,
    LoaderAhead,
    PinnedLoader,
    RingLoader,
    SideStream,
)
from vedette_rl.device.ring import DeviceRing
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.testing.contracts import same_state
from vedette_services.config.parts import LearnerConfig
from vedette_services.learner.trainer.training_loop import TrainingLoop
from vedette_services.status.records import TrainerStatus

CPU = torch.device("cpu")
SPACES = Spaces(gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(3))
ROWS = 200
BATCH = 8
CONFIG = IqnConfig(
    hidden_sizes=(8, 8),
    batch_size=BATCH,
    n_quantiles=4,
    n_target_quantiles=4,
    n_action_quantiles=4,
    target_update_interval=3,
)
INTERVALS = LearnerConfig(
    sync_interval=5,
    save_interval=0,
    eval_interval=0,
    record_agent_info_interval=4,
    record_compute_cost_interval=0,
    flush_record_interval=4,
)


def rows() -> MemoryRing:
    ring = MemoryRing(transition_dtype(SPACES), ROWS)
    rng = np.random.default_rng(0)
    columns = empty_columns(transition_dtype(SPACES), ROWS)
    for name, column in columns.items():
        high = 2 if column.dtype == bool or name == "n_steps" else 3
        drawn = rng.standard_normal(column.shape)
        column[...] = drawn if column.dtype.kind == "f" else rng.integers(0, high, column.shape)
    ring.append(columns, ROWS)
    ring.commit()
    return ring


class Kept:
    """Callbacks that keep models, which are read at the end, and records."""

    def __init__(self) -> None:
        self.models: list[Any] = []
        self.records: list[dict[str, float]] = []

    def publish(self, agent: Agent) -> None:
        self.models.append(agent.model_info().arrays)

    def save(self, agent: Agent, learning: TrainerStatus, errors: State) -> None: ...

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        if "average_opt_time" not in record:  # the only one that is a time
            self.records.append(record)

    def flush(self, opt_steps: int) -> None: ...

    def tick(self, learning: TrainerStatus) -> str:
        return ""


def train(agent: IqnAgent, replay: Any, loader: DeviceLoader, steps: int) -> Kept:
    kept = Kept()
    TrainingLoop(
        agent,
        replay,
        loader,
        Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=BATCH),
        INTERVALS,
        kept,
        learning=TrainerStatus(),
        max_opts=steps,
        samples_per_opt=BATCH,
        mark=lambda: host_copy.mark_work(CPU),
    ).run()
    return kept


def replay_of(ring: MemoryRing, prioritized: bool) -> Any:
    rng = np.random.default_rng(1)
    return PrioritizedReplay(ring, rng, ReplayConfig()) if prioritized else UniformReplay(ring, rng)


def new_agent(kind: type[IqnAgent] = IqnAgent) -> IqnAgent:
    return kind(CONFIG, SPACES, device="cpu", seed=0)


def capture(agent: IqnAgent, device: torch.device = CPU) -> IqnAgent:
    agent.capture_by(CudaCapture(device, agent.generators))
    return agent


def learns_as_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
    *,
    copied: bool = False,
    prioritized: bool = False,
    steps: int = 24,
) -> None:
    """A training loop, by pinned memory or on a copy of the replay."""
    cuda = StrictCuda(monkeypatch, in_flight=8)
    agent = capture(new_agent())
    ring = rows()
    replay = replay_of(ring, prioritized)
    with cuda:
        loader: DeviceLoader
        if copied:
            loader = RingLoader(replay, DeviceRing(ring, CPU, capture=CudaCapture(CPU)), BATCH)
        else:
            loader = PinnedLoader(replay, BATCH, SideStream(CPU))
        loader.load()  # what is made once
        if implements(loader, LoaderAhead):
            loader.draw_ahead()
        torch.cuda.set_sync_debug_mode("default")
        kept = train(agent, replay, no_waits(loader), steps)
        cuda.check()
    models = [dict(model) for model in kept.models]
    assert agent._captured is not None
    assert agent._captured.reason == ""
    assert agent._captured.kinds_captured == 3  # both parts are due together too rarely
    assert cuda.captured == 3 + copied  # and how a batch is gathered
    assert agent.get_state()["adam"]["step"] == steps
    if prioritized:  # priorities come later than on a CPU, so that other rows are drawn
        return
    monkeypatch.setattr(host_copy, "is_asynchronous", lambda device: False)
    eager = new_agent()
    plain = replay_of(rows(), prioritized)
    of_cpu = CpuLoader(plain, BATCH, CPU)
    of_cpu.load()
    expected = train(eager, plain, of_cpu, steps)
    assert same_state(agent, eager)
    assert kept.records == expected.records
    for ours, theirs in zip(models, expected.models, strict=True):
        for name, array in theirs.items():
            np.testing.assert_array_equal(ours[name], array)


def no_waits(loader: Any) -> Any:
    """The loader; loading waits for no operation of the device."""

    def without_waits(call: Callable[[], Any]) -> Callable[[], Any]:
        def calls() -> Any:
            torch.cuda.set_sync_debug_mode("error")
            try:
                return call()
            finally:
                torch.cuda.set_sync_debug_mode("default")

        return calls

    loader.load = without_waits(loader.load)
    if implements(loader, LoaderAhead):
        loader.draw_ahead = without_waits(loader.draw_ahead)  # type: ignore[method-assign]
    return loader


def learns_on_a_copy_as_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there waits for the device but the loop's bound."""
    learns_as_on_a_cpu(monkeypatch, copied=True, steps=34)


def learns_by_priorities_as_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    learns_as_on_a_cpu(monkeypatch, copied=True, prioritized=True)


class Faulty(IqnAgent):
    """Does something in one of its steps, beside the step."""

    at = 0
    begun = 0

    def does(self, batch: Any) -> None: ...

    def step(self, batch: Any, weights: Any, due: Due) -> StepResult:
        self.begun += 1
        if self.begun == self.at:
            self.does(batch)
        return super().step(batch, weights, due)


class Waits(Faulty):
    def does(self, batch: Any) -> None:
        batch["reward"].sum().item()


class TooLarge(Faulty):
    def does(self, batch: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def opts(agent: IqnAgent, count: int) -> None:
    loader = CpuLoader(UniformReplay(rows(), np.random.default_rng(1)), BATCH, CPU)
    for _ in range(count):
        agent.opt(loader.load().batch)


def goes_on_after_a_capture_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = StrictCuda(monkeypatch)
    cuda.fails = "operation not permitted"
    agent = capture(new_agent())
    with cuda:
        opts(agent, 12)
        cuda.check()
    eager = new_agent()
    opts(eager, 12)
    assert same_state(agent, eager)


def goes_on_after_memory_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = StrictCuda(monkeypatch)
    agent = new_agent(TooLarge)
    assert isinstance(agent, TooLarge)
    agent.at = 5  # two of each kind, so the capture of the first kind
    capture(agent)
    with cuda:
        try:
            opts(agent, 12)
        except torch.OutOfMemoryError:
            cuda.check()
            return
    raise AssertionError("memory that ended is taken for a step that cannot be captured")


def may_wait_in_its_first_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = StrictCuda(monkeypatch)
    agent = new_agent(Waits)
    assert isinstance(agent, Waits)
    agent.at = 1
    capture(agent)
    with cuda:
        opts(agent, 12)
        cuda.check()
    assert cuda.captured


def gathers_as_on_a_cpu(cuda: StrictCuda) -> None:
    """Batches from a copy, though how they are gathered is not captured."""
    ring = rows()
    plain = CpuLoader(replay_of(ring, False), BATCH, CPU)
    with cuda:
        copy = DeviceRing(ring, CPU, capture=CudaCapture(CPU))
        loader = RingLoader(replay_of(ring, False), copy, BATCH)
    for _ in range(8):
        with cuda:
            found = loader.load()
        cuda.synchronize()
        expected = plain.load()
        np.testing.assert_array_equal(found.indices, expected.indices)
        for name, column in expected.batch.items():
            assert torch.equal(found.batch[name], column), name
    cuda.check()
    assert cuda.captured == 0


def gathers_on_after_a_capture_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = StrictCuda(monkeypatch)
    cuda.fails = "operation not permitted"
    gathers_as_on_a_cpu(cuda)


def gathers_on_after_memory_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory for the graph is no reason to give up the copy, or the batch that was drawn."""
    cuda = StrictCuda(monkeypatch)
    select = torch.index_select

    def full(*arguments: Any, **keywords: Any) -> torch.Tensor:
        if cuda.is_capturing:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return select(*arguments, **keywords)

    monkeypatch.setattr(torch, "index_select", full)
    gathers_as_on_a_cpu(cuda)


def is_captured_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = StrictCuda(monkeypatch, graphs_on=1)
    agent = capture(new_agent(), torch.device("cuda", 1))
    with cuda:
        opts(agent, 8)
        cuda.check()
    assert cuda.captured


SCENARIOS = (
    learns_as_on_a_cpu,
    learns_on_a_copy_as_on_a_cpu,
    learns_by_priorities_as_on_a_cpu,
    goes_on_after_a_capture_that_fails,
    goes_on_after_memory_that_ends,
    gathers_on_after_a_capture_that_fails,
    gathers_on_after_memory_that_ends,
    may_wait_in_its_first_steps,
    is_captured_on_its_device,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_path_of_a_captured_step(
    scenario: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario(monkeypatch)


F = FunctionMutation
_STAGING_IS_CAPTURED = """
    self.now = places
    gather = self._gather
    copy = lambda: self.places.copy_(stage(self.now, CPU).view(-1), non_blocking=True)
    both = [copy, gather._as_it_is]
    if not hasattr(self, "both"):
        self.both = _Gather(both, gather._captured._capture)
    self.both()
""".strip().replace("CPU", "self.places.device")
MUTATIONS: tuple[tuple[FunctionMutation, Callable[[pytest.MonkeyPatch], None]], ...] = (
    (F(CudaCapture, "warm_up", "self._stream.wait_stream(current)"), learns_as_on_a_cpu),
    (F(CudaCapture, "warm_up", "current.wait_stream(self._stream)"), learns_as_on_a_cpu),
    (F(CudaCapture, "warm_up", "if last:", "if not last:"), may_wait_in_its_first_steps),
    (F(CudaCapture, "record", "self._register_generators(graph)"), learns_as_on_a_cpu),
    (
        F(CudaCapture, "record", "with torch.cuda.device(self._device):", "if True:"),
        is_captured_on_its_device,
    ),
    (
        F(CudaCapture, "record", "if isinstance(cause, torch.OutOfMemoryError):", "if False:"),
        goes_on_after_memory_that_ends,
    ),
    (
        F(CudaCapture, "_leave_capture", "torch.cuda.set_stream(current)"),
        goes_on_after_a_capture_that_fails,
    ),
    (
        F(CudaCapture, "_leave_capture", "end_pool(index, self._pool)"),
        goes_on_after_a_capture_that_fails,
    ),
    (
        F(CudaCapture, "_leave_capture", "generator.graphsafe_set_state(generator.clone_state())"),
        goes_on_after_a_capture_that_fails,
    ),
    (
        F(CapturedStep, "_fill", "tensor.copy_(given[name], non_blocking=True)"),
        learns_as_on_a_cpu,
    ),
    (
        F(CapturedWork, "__call__", "self._work()  # what failed has done nothing"),
        goes_on_after_a_capture_that_fails,
    ),
    (F(CapturedWork, "__call__", "    self._replay()\n", "    pass\n"), learns_as_on_a_cpu),
    (
        F(CapturedWork, "__call__", "self._work()  # what failed has done nothing"),
        gathers_on_after_a_capture_that_fails,
    ),
    (
        F(
            CapturedStep,
            "__call__",
            "work, outputs = self._kinds[due]",
            "work, outputs = next(iter(self._kinds.values()))",
        ),
        learns_as_on_a_cpu,
    ),
    (
        F(
            gathered._Gather,
            "__call__",
            "self._captured()",
            "self._captured._replay or self._captured()",
        ),
        learns_on_a_copy_as_on_a_cpu,
    ),
    (
        F(gathered._Gather, "__call__", "if full:", "if False:"),
        gathers_on_after_memory_that_ends,
    ),
    (
        F(
            gathered._Gather,
            "__call__",
            "except torch.OutOfMemoryError as",
            "except ZeroDivisionError as",
        ),
        gathers_on_after_memory_that_ends,
    ),
    (F(gathered, "_run", "in operations", "in operations[1:]"), learns_on_a_copy_as_on_a_cpu),
    (
        F(gathered, "_pick", "picks.append(", "len(picks) == 2 or picks.append("),
        learns_on_a_copy_as_on_a_cpu,
    ),
    (
        F(
            gathered.GatheredRows,
            "fill",
            "self.places.copy_(stage(places, self.places.device).view(-1), non_blocking=True)",
            "self._now = places",
        ),
        learns_on_a_copy_as_on_a_cpu,
    ),
    (
        F(
            gathered.GatheredRows,
            "fill",
            "self.places.copy_(stage(places, self.places.device).view(-1), non_blocking=True)\n"
            "    self._gather()",
            _STAGING_IS_CAPTURED,
        ),
        learns_on_a_copy_as_on_a_cpu,
    ),
    (F(SteppedAgent, "opt", "optimizer.count()"), learns_as_on_a_cpu),
    (F(host_copy, "read_later", "mark_work(tensor.device))", "Reached())"), learns_as_on_a_cpu),
    (F(host_copy.HostCopy, "array", "self._event.synchronize()"), learns_as_on_a_cpu),
    (
        F(
            host_copy._CopiesAside,
            "begin",
            "self._stream.wait_stream(torch.cuda.current_stream(tensor.device))",
        ),
        learns_as_on_a_cpu,
    ),
    (
        F(host_copy._CopiesAside, "begin", "self._kept.append((frozen, copied))"),
        learns_as_on_a_cpu,
    ),
    (F(host_copy._CopiesAside, "begin", "tensor.clone()", "tensor"), learns_as_on_a_cpu),
    (
        F(SideStream, "copy", "self._stream.wait_stream(torch.cuda.current_stream(self._device))"),
        learns_as_on_a_cpu,
    ),
    (F(SideStream, "copy", "non_blocking=True", "non_blocking=False"), learns_as_on_a_cpu),
    (
        F(SideStream, "hand_over", "torch.cuda.current_stream(self._device).wait_event(copied)"),
        learns_as_on_a_cpu,
    ),
    (F(PinnedLoader, "_fetch", "self._copied[self._turn].synchronize()"), learns_as_on_a_cpu),
    (F(PinnedLoader, "_fetch", "self._turn ^= 1"), learns_as_on_a_cpu),
    (
        F(
            RingLoader,
            "load",
            "weights = self._weights.copy_(staged, non_blocking=True)",
            "weights = self._weights.copy_(staged)",
        ),
        learns_by_priorities_as_on_a_cpu,
    ),
    (
        F(
            TrainingLoop,
            "_wait_for_device",
            "self._given.popleft().synchronize()",
            "self._given.popleft()",
        ),
        learns_on_a_copy_as_on_a_cpu,
    ),
)


@pytest.mark.parametrize(
    ("mutation", "scenario"), MUTATIONS, ids=lambda part: getattr(part, "__name__", str(part)[:60])
)
def test_a_fault_in_the_path_of_a_captured_step_is_found(
    mutation: FunctionMutation,
    scenario: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutation.install(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, IndexError)):  # of places that are none
        scenario(monkeypatch)
