"""A captured step does what the step does, though Python runs it no more."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from recorded_operations import RecordedOperations, Recording  # beside this file

from vedette_rl.agents.captured_step import CudaCapture, Due, SteppedAgent, StepResult
from vedette_rl.agents.dqn.agent import DqnAgent
from vedette_rl.agents.registry import BUILT_IN, agent_kind
from vedette_rl.core import empty_columns
from vedette_rl.core.learning import StaticBatch
from vedette_rl.device.loader import CpuLoader, RingLoader
from vedette_rl.device.ring import DeviceRing
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.testing.contracts import same_state

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
PIXELS = gym.spaces.Box(0, 255, (2, 12, 12), np.uint8)
CPU = torch.device("cpu")
BOX = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
SCHEDULE = {"kind": "cosine", "warmup_opts": 10, "total_opts": 40, "final": 0.1}
SMALL = {"hidden_sizes": (16, 16), "batch_size": 8}

DQN = (
    "dqn",
    Spaces(VECTOR, gym.spaces.Discrete(3)),
    {"schedule": SCHEDULE, "target_update_interval": 7, "dueling": True},
)
IQN = ("iqn", Spaces(VECTOR, gym.spaces.MultiDiscrete([2, 3])), {"target_update_interval": 4})
MUNCHAUSEN = (IQN[0], IQN[1], {"munchausen": {"alpha": 0.9}, "normalize_observations": True})
SAC = (
    "sac",
    Spaces(VECTOR, BOX),
    {
        "policy_delay": 2,
        "target_update_interval": 3,
        "n_critics": 3,
        "critics_in_target": 2,
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "normalize_observations": True,
        "schedule": SCHEDULE,
    },
)
PLAIN_SAC = ("sac", Spaces(VECTOR, BOX), {})
TD3 = ("td3", Spaces(VECTOR, BOX), {})
PIXEL_SAC = ("sac", Spaces(PIXELS, BOX), {"image_features": 8, "convolutions": "small"})
Case = tuple[str, Spaces, dict[str, Any]]
CASES: list[Case] = [DQN, IQN, MUNCHAUSEN, SAC, TD3]


def build(case: Case) -> Any:
    name, spaces, options = case
    kind = agent_kind(name)
    return kind.build_agent(kind.config(**{**SMALL, **options}), spaces, device="cpu", seed=3)


def compare(case: Case, steps: int, make_batch: Any) -> tuple[RecordedOperations, Any]:
    """Both agents learn from the same batches, one of them by replays."""
    eager, replayed = build(case), build(case)
    capture = RecordedOperations(replayed.generators)
    replayed.capture_by(capture)
    batches = [make_batch(case[1], 8, seed) for seed in range(min(steps, 50))]
    weights = torch.linspace(0.5, 1.0, 8)
    for step in range(steps):
        batch = batches[step % len(batches)]
        record = step % 5 == 0
        ours = replayed.opt(dict(batch), weights * (step % 3 + 1), record=record)
        expected = eager.opt(dict(batch), weights * (step % 3 + 1), record=record)
        assert torch.equal(ours.td_errors, expected.td_errors), step
        assert dict(ours.record) == dict(expected.record), step
    assert same_state(eager, replayed)
    assert eager.model_info().version == replayed.model_info().version == steps
    for name, array in eager.model_info().arrays.items():
        np.testing.assert_array_equal(replayed.model_info().arrays[name], array)
    return capture, replayed


def test_every_agent_is_among_the_cases() -> None:
    assert {name for name, _, _ in CASES} == BUILT_IN.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_replayed_steps_are_those_of_python_bit_by_bit(case: Case, make_batch: Any) -> None:
    capture, _ = compare(case, 70, make_batch)
    kinds = {build(case).due(record=record) for record in (True, False)}
    assert capture.recorded >= len(kinds)
    assert capture.replayed >= 40


@pytest.mark.slow
@pytest.mark.parametrize("case", [DQN, IQN, SAC, PLAIN_SAC, TD3], ids=lambda case: case[0])
def test_a_thousand_replayed_steps_are_those_of_python(case: Case, make_batch: Any) -> None:
    capture, _ = compare(case, 1000, make_batch)
    assert capture.replayed > 940


def test_shifted_images_are_replayed_too(make_batch: Any) -> None:
    capture, _ = compare(PIXEL_SAC, 12, make_batch)
    assert capture.replayed


def test_python_runs_each_kind_of_step_four_times(
    make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times as it is, and once to be recorded."""
    ran: list[Due] = []
    step = DqnAgent.step

    def counted(self: DqnAgent, batch: Any, weights: Any, due: Due) -> StepResult:
        ran.append(due)
        return step(self, batch, weights, due)

    monkeypatch.setattr(DqnAgent, "step", counted)
    agent = build(DQN)
    agent.capture_by(RecordedOperations(agent.generators))
    for seed in range(60):
        agent.opt(make_batch(DQN[1], 8, seed))
    assert {due: ran.count(due) for due in ran} == {Due(): 4, Due(target=True): 4}


def test_a_resumed_agent_goes_on_from_its_captured_steps(make_batch: Any) -> None:
    _, agent = compare(SAC, 30, make_batch)
    other = build(SAC)
    other.capture_by(RecordedOperations(other.generators))
    for seed in range(40):  # all kinds are captured before the state comes
        other.opt(make_batch(SAC[1], 8, seed), torch.ones(8))
    other.set_state(agent.get_state())
    for seed in range(12):
        batch = make_batch(SAC[1], 8, seed)
        found, expected = (each.opt(batch, torch.ones(8)) for each in (other, agent))
        assert torch.equal(found.td_errors, expected.td_errors)
    assert same_state(other, agent)


def test_a_static_batch_is_read_where_it_lies(make_batch: Any) -> None:
    agent, eager = build(DQN), build(DQN)
    agent.capture_by(RecordedOperations(agent.generators))
    batch = StaticBatch(make_batch(DQN[1], 8, 0))
    for seed in range(12):
        for name, tensor in make_batch(DQN[1], 8, seed).items():
            batch[name].copy_(tensor)
        kept = {name: tensor.clone() for name, tensor in batch.items()}
        agent.opt(batch)
        eager.opt(kept)
        assert all(torch.equal(batch[name], kept[name]) for name in kept)
    assert same_state(agent, eager)


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_replayed_learner_on_a_copy_of_the_replay_is_the_plain_one(prioritized: bool) -> None:
    """All of the GPU's path but the device: a ring that is followed, fixed batches, replays."""
    _, spaces, _ = DQN
    ring = MemoryRing(transition_dtype(spaces), 300, guard=100)
    rng = np.random.default_rng(0)

    def insert(rows: int) -> None:
        columns = empty_columns(transition_dtype(spaces), rows)
        for column in columns.values():
            column[...] = rng.integers(0, 2, column.shape)
        ring.append(columns, rows)
        ring.commit()

    def replay() -> UniformReplay | PrioritizedReplay:
        drawn = np.random.default_rng(1)
        return (
            PrioritizedReplay(ring, drawn, ReplayConfig())
            if prioritized
            else UniformReplay(ring, drawn)
        )

    ticks = itertools.count()
    plain, followed = replay(), replay()
    copy = DeviceRing(ring, CPU, clock=lambda: float(next(ticks)))
    loaders = CpuLoader(plain, 8, CPU), RingLoader(followed, copy, 8)
    eager, replayed = build(DQN), build(DQN)
    replayed.capture_by(RecordedOperations(replayed.generators))
    for _ in range(60):
        insert(20)
        for agent, loader, drawn in zip((eager, replayed), loaders, (plain, followed), strict=True):
            loaded = loader.load()
            result = agent.opt(loaded.batch, loaded.weights)
            drawn.update_priority(loaded.indices, result.td_errors.numpy())
    assert replayed._captured.reason == ""
    assert same_state(eager, replayed)


def test_a_batch_of_another_form_is_learned_from_as_it_is(make_batch: Any) -> None:
    agent, eager = build(DQN), build(DQN)
    agent.capture_by(RecordedOperations(agent.generators))
    for seed in range(12):
        rows, weights = (6, None) if seed % 4 == 3 else (8, torch.ones(8))
        for each in (agent, eager):
            each.opt(make_batch(DQN[1], rows, seed), weights)
    assert same_state(agent, eager)


class Waiting(DqnAgent):
    """Reads a scalar in the middle of its step."""

    def step(self, batch: Any, weights: Any, due: Due) -> StepResult:
        if batch["reward"].mean().item() > 1e9:
            raise AssertionError
        return super().step(batch, weights, due)


def test_a_step_that_waits_is_not_captured_and_the_reason_is_said_once(
    make_batch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    config = agent_kind("dqn").config(**SMALL)
    spaces = DQN[1]
    agent, eager = (kind(config, spaces, device="cpu", seed=0) for kind in (Waiting, DqnAgent))
    agent.capture_by(RecordedOperations(agent.generators))
    with caplog.at_level(logging.WARNING):
        for seed in range(12):
            agent.opt(make_batch(spaces, 8, seed))
            eager.opt(make_batch(spaces, 8, seed))
    assert same_state(agent, eager)
    (line,) = caplog.messages
    assert line.startswith("Waiting: optimization steps are not captured")
    assert "_local_scalar_dense" in line


def test_an_agent_of_one_step_needs_no_more_than_its_tensors(make_batch: Any) -> None:
    """What the module's docstring shows."""

    class Counting(SteppedAgent):
        def __init__(self) -> None:
            self.total = torch.zeros(())

        def due(self, *, record: bool) -> Due:
            return Due(record=record)

        def optimizers(self, due: Due) -> tuple[()]:
            return ()

        def step(self, batch: Any, weights: Any, due: Due) -> StepResult:
            self.total += batch["reward"].sum()
            record = {"total": self.total} if due.record else {}
            return StepResult(batch["reward"].abs(), record)

    agent = Counting()
    agent.capture_by(RecordedOperations(()))
    batch = {"reward": torch.ones(4)}
    found = [agent.opt(batch, record=True).record["total"] for _ in range(9)]
    assert found == [4.0 * (n + 1) for n in range(9)]
    assert agent.opt_steps == 9


class FakeCuda:
    """The calls of `torch.cuda` that a capture makes, on a CPU: graphs are recorded operations.

    Arguments are held against the signatures of the installed torch.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.registered: list[torch.Generator] = []
        self.modes: list[object] = ["default"]
        self.streams: list[str] = []
        self.warns = self.fails = False
        signature = inspect.signature(torch.cuda.graph.__init__)
        fake = self

        class Graph:
            def register_generator_state(self, generator: torch.Generator) -> None:
                fake.registered.append(generator)

            def replay(self) -> None:
                for call in self.recording.calls:
                    call()

        class Stream:
            def __init__(self, device: torch.device) -> None: ...

            def wait_stream(self, other: Stream) -> None:
                fake.streams.append("waits")

        @contextlib.contextmanager
        def graph(*arguments: Any, **keywords: Any) -> Iterator[None]:
            signature.bind(None, *arguments, **keywords)
            assert keywords["capture_error_mode"] == "thread_local"
            arguments[0].recording = Recording()
            with arguments[0].recording:
                yield
            arguments[0].recording.put_back()
            if fake.fails:
                raise RuntimeError("CUDA error: operation not permitted\nmore of it")

        for name, value in {
            "CUDAGraph": Graph,
            "Stream": Stream,
            "graph": graph,
            "graph_pool_handle": lambda: (0, 1),
            "stream": lambda _: contextlib.nullcontext(),
            "current_stream": lambda _: Stream(CPU),
            "get_sync_debug_mode": lambda: self.modes[-1],
            "set_sync_debug_mode": self.set_mode,
            "default_generators": (FakeGenerator(),),
        }.items():
            assert hasattr(torch.cuda, name)
            monkeypatch.setattr(torch.cuda, name, value)

    def set_mode(self, mode: object) -> None:
        if mode == "warn" and self.warns:
            warnings.warn("called a synchronizing CUDA operation (Triggered ...)", stacklevel=1)
        self.modes.append(mode)


class FakeGenerator:
    """A generator of a GPU, which a failed capture leaves as it must not be."""

    fresh = 0

    def clone_state(self) -> str:
        assert hasattr(torch.Generator, "clone_state")
        return "clone"

    def graphsafe_set_state(self, state: str) -> None:
        assert hasattr(torch.Generator, "graphsafe_set_state")
        assert state == "clone"
        self.fresh += 1


def test_a_cuda_graph_is_asked_for_as_torch_documents_it(
    monkeypatch: pytest.MonkeyPatch, make_batch: Any
) -> None:
    fake, eager, agent = FakeCuda(monkeypatch), build(DQN), build(DQN)
    generators = (FakeGenerator(),)
    agent.capture_by(CudaCapture(CPU, generators))  # type: ignore[arg-type]
    for seed in range(12):
        agent.opt(make_batch(DQN[1], 8, seed))
        eager.opt(make_batch(DQN[1], 8, seed))
    assert same_state(agent, eager)
    assert len(agent._captured._replays) == 1
    assert fake.registered == [*generators]
    assert fake.modes[-1] == "default"
    assert fake.streams.count("waits") == 2 * 4  # three of one kind, one of the other


@pytest.mark.parametrize("how", ["warns", "fails"])
def test_a_capture_that_fails_leaves_the_agent_as_it_was(
    how: str, monkeypatch: pytest.MonkeyPatch, make_batch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fake, eager, agent = FakeCuda(monkeypatch), build(DQN), build(DQN)
    generator = FakeGenerator()
    agent.capture_by(CudaCapture(CPU, (generator,)))  # type: ignore[arg-type]
    setattr(fake, how, True)
    for seed in range(12):
        agent.opt(make_batch(DQN[1], 8, seed))
        eager.opt(make_batch(DQN[1], 8, seed))
    assert same_state(agent, eager)
    (line,) = caplog.messages
    expected = {"warns": "it waits for the device at", "fails": "CUDA error: operation not"}
    assert expected[how] in line
    assert "\n" not in line
    assert generator.fresh == (how == "fails")
