"""A captured step does what the step does, though Python runs it no more."""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from blocks import minibatches, random_block  # of tests/support
from every_agent import OF_SAMPLES
from strict_cuda import StrictCuda

from vedette_rl.agents.captured_step import Due, SteppedAgent, StepResult
from vedette_rl.agents.dqn.agent import DqnAgent
from vedette_rl.agents.recurrent_policy import memory_column
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import empty_columns
from vedette_rl.core.learning import BlockBatch, StaticBatch
from vedette_rl.device.cuda_graphs import CudaCapture
from vedette_rl.device.loader import CpuLoader, RingLoader
from vedette_rl.device.ring import DeviceRing
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.testing import sampled_sequences
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
RECURRENT_DQN = (
    "dqn",
    Spaces(VECTOR, gym.spaces.Discrete(3)),
    {
        "memory": "gru",
        "memory_size": 6,
        "n_step": 2,
        "value_rescaling": True,
        "normalize_observations": True,
        "target_update_interval": 7,
    },
)
RECURRENT: list[Case] = [
    RECURRENT_DQN,
    (
        "iqn",
        Spaces(VECTOR, gym.spaces.MultiDiscrete([2, 3])),
        {"memory": "gru", "memory_size": 6, "target_update_interval": 4, "value_rescaling": True},
    ),
    ("sac", Spaces(VECTOR, BOX), {"memory": "gru", "memory_size": 6, "n_step": 2}),
    (
        "td3",
        Spaces(VECTOR, BOX),
        {"memory": "gru", "memory_size": 6, "shared_encoder": False},
    ),
]
PLAIN_SAC = ("sac", Spaces(VECTOR, BOX), {})
TD3 = ("td3", Spaces(VECTOR, BOX), {})
NORMALIZED_SAC = ("sac", Spaces(VECTOR, BOX), {"policy_batch_norm": True, "policy_delay": 2})
PIXEL_SAC = ("sac", Spaces(PIXELS, BOX), {"image_features": 8, "convolutions": "small"})
Case = tuple[str, Spaces, dict[str, Any]]
CASES: list[Case] = [DQN, IQN, MUNCHAUSEN, SAC, TD3]


def build(case: Case) -> Any:
    name, spaces, options = case
    kind = agent_kind(name)
    return kind.build_agent(kind.config(**{**SMALL, **options}), spaces, device="cpu", seed=3)


def captured(case: Case) -> Any:
    """An agent whose steps are captured, on the GPU that the stand-in is."""
    agent = build(case)
    agent.capture_by(CudaCapture(CPU, agent.generators))
    return agent


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StrictCuda:
    return StrictCuda(monkeypatch)


def learn(agent: Any, batches: list[Any], steps: int) -> list[Any]:
    """Take steps from batches in turn, every fifth of them recorded; returns the results."""
    weights = torch.linspace(0.5, 1.0, 8)
    results = []
    for step in range(steps):
        batch = dict(batches[step % len(batches)])
        result = agent.opt(batch, weights * (step % 3 + 1), record=step % 5 == 0)
        results.append((result.td_errors.clone(), result.record))
    return results


def compare(cuda: StrictCuda, case: Case, steps: int, make_batch: Any) -> Any:
    """Two agents learn from the same batches, one of them by replays, which is returned."""
    batches = [make_batch(case[1], 8, seed) for seed in range(min(steps, 50))]
    eager = build(case)
    replayed = captured(case)
    with cuda:
        ours = learn(replayed, batches, steps)
        cuda.check()
    expected = learn(eager, batches, steps)
    cuda.synchronize()
    for step, ((errors, record), (right, right_record)) in enumerate(
        zip(ours, expected, strict=True)
    ):
        assert torch.equal(errors, right), step
        assert dict(record) == dict(right_record), step
    assert replayed._captured.reason == ""
    assert same_state(eager, replayed)
    assert eager.model_info().version == replayed.model_info().version == steps
    for name, array in eager.model_info().arrays.items():
        np.testing.assert_array_equal(replayed.model_info().arrays[name], array)
    return replayed


def test_every_agent_of_samples_is_among_the_cases() -> None:
    assert {name for name, _, _ in CASES} == {*OF_SAMPLES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_replayed_steps_are_those_of_python_bit_by_bit(
    case: Case, cuda: StrictCuda, make_batch: Any
) -> None:
    compare(cuda, case, 40 if case is SAC else 24, make_batch)  # SAC has more kinds of steps
    kinds = {build(case).due(record=record) for record in (True, False)}
    assert cuda.captured >= len(kinds)
    assert cuda.replayed >= 10


@pytest.mark.slow
@pytest.mark.parametrize("case", [DQN, IQN, SAC, PLAIN_SAC, TD3], ids=lambda case: case[0])
def test_a_thousand_replayed_steps_are_those_of_python(
    case: Case, cuda: StrictCuda, make_batch: Any
) -> None:
    compare(cuda, case, 1000, make_batch)
    assert cuda.replayed > 940


def sequences(spaces: Spaces, rows: int, seed: int) -> dict[str, torch.Tensor]:
    """A random batch of sequences of 5 steps behind up to 2 of burn-in."""
    columns = sampled_sequences(spaces, rows, 5, 2, seed, [memory_column(6)])
    return {name: torch.from_numpy(column) for name, column in columns.items()}


@pytest.mark.parametrize("case", RECURRENT, ids=lambda case: case[0])
def test_steps_on_sequences_are_replayed_too(case: Case, cuda: StrictCuda) -> None:
    compare(cuda, case, 24, sequences)
    assert cuda.replayed >= 10


def test_shifted_images_are_replayed_too(cuda: StrictCuda, make_batch: Any) -> None:
    compare(cuda, PIXEL_SAC, 12, make_batch)
    assert cuda.replayed


def test_a_normalized_policys_statistics_are_replayed_too(
    cuda: StrictCuda, make_batch: Any
) -> None:
    compare(cuda, NORMALIZED_SAC, 24, make_batch)
    assert cuda.replayed >= 10


def test_renormalization_begins_in_a_replayed_step(
    cuda: StrictCuda, make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vedette_rl.networks.torch_network._RENORM_WARMUP", 15)
    case = ("sac", Spaces(VECTOR, BOX), {"critic_architecture": "batch_renorm"})
    renormalized = compare(cuda, case, 24, make_batch).get_state()["critics"]
    assert renormalized["q.counted"] == 15
    plain = build(PLAIN_SAC)
    learn(plain, [make_batch(case[1], 8, seed) for seed in range(24)], 24)
    mean = plain.get_state()["critics"]["q.statistics.1"]
    assert not torch.equal(mean, renormalized["q.statistics.1"])


def test_python_runs_each_kind_of_step_four_times(
    cuda: StrictCuda, make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times as it is, and once to be recorded."""
    ran: list[Due] = []
    step = DqnAgent.step

    def counted(self: DqnAgent, batch: Any, weights: Any, due: Due) -> StepResult:
        ran.append(due)
        return step(self, batch, weights, due)

    monkeypatch.setattr(DqnAgent, "step", counted)
    agent = captured(DQN)
    with cuda:
        for seed in range(40):
            agent.opt(make_batch(DQN[1], 8, seed))
    assert {due: ran.count(due) for due in ran} == {Due(): 4, Due(target=True): 4}


def test_a_resumed_agent_goes_on_from_its_captured_steps(cuda: StrictCuda, make_batch: Any) -> None:
    agent, other = build(SAC), captured(SAC)
    batches = [make_batch(SAC[1], 8, seed) for seed in range(12)]
    learn(agent, batches, 30)
    state = agent.get_state()
    with cuda:
        learn(other, batches, 36)  # all kinds are captured before the state comes
        other.set_state(state)
        found = learn(other, batches, 12)
        cuda.check()
    for (errors, _), (expected, _) in zip(found, learn(agent, batches, 12), strict=True):
        assert torch.equal(errors, expected)
    assert same_state(other, agent)


def test_a_static_batch_is_read_where_it_lies(cuda: StrictCuda, make_batch: Any) -> None:
    agent, eager = captured(DQN), build(DQN)
    batch = StaticBatch(make_batch(DQN[1], 8, 0))
    for seed in range(12):
        kept = make_batch(DQN[1], 8, seed)
        with cuda:
            for name, tensor in kept.items():
                batch[name].copy_(tensor)
            agent.opt(batch)
        eager.opt(kept)
        assert all(torch.equal(batch[name], kept[name]) for name in kept)
    assert same_state(agent, eager)


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_replayed_learner_on_a_copy_of_the_replay_is_the_plain_one(
    prioritized: bool, cuda: StrictCuda
) -> None:
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
    eager, replayed = build(DQN), captured(DQN)
    for _ in range(40):
        insert(20)
        for agent, loader, drawn in zip((eager, replayed), loaders, (plain, followed), strict=True):
            with cuda if agent is replayed else contextlib.nullcontext():
                loaded = loader.load()
                result = agent.opt(loaded.batch, loaded.weights)
                cuda.synchronize()
            drawn.update_priority(loaded.indices, result.td_errors.numpy())
    cuda.check()
    assert replayed._captured.reason == ""
    assert same_state(eager, replayed)


def test_a_batch_of_another_form_is_learned_from_as_it_is(
    cuda: StrictCuda, make_batch: Any
) -> None:
    agent, eager = captured(DQN), build(DQN)
    for seed in range(12):
        rows, weights = (6, None) if seed % 4 == 3 else (8, torch.ones(8))
        batch = make_batch(DQN[1], rows, seed)
        eager.opt(batch, weights)
        with cuda:
            agent.opt(batch, weights)
    cuda.check()
    assert same_state(agent, eager)


def test_an_agent_of_one_step_needs_no_more_than_its_tensors(cuda: StrictCuda) -> None:
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
    agent.capture_by(CudaCapture(CPU, ()))
    batch = {"reward": torch.ones(4)}
    with cuda:
        found = [agent.opt(batch, record=True).record["total"] for _ in range(9)]
    assert found == [4.0 * (n + 1) for n in range(9)]
    assert agent.opt_steps == 9


class Misbehaving(DqnAgent):
    """An agent that does something in the steps of these numbers, beside a step."""

    misbehaves: Callable[[Any], None]
    at: frozenset[int] = frozenset()
    begun = 0

    def step(self, batch: Any, weights: Any, due: Due) -> StepResult:
        self.begun += 1
        if self.begun in self.at:
            type(self).misbehaves(batch)
        return super().step(batch, weights, due)


def reads_a_scalar(batch: Any) -> None:
    if batch["reward"].mean().item() > 1e9:
        raise AssertionError


def warns(batch: Any) -> None:
    warnings.warn("the network's own warning", UserWarning, stacklevel=1)


def refuses(batch: Any) -> None:
    raise ValueError("no step like this")


def is_too_large(batch: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")


def misbehaving(what: Callable[[Any], None], *at: int) -> Any:
    kind = type("Misbehaving", (Misbehaving,), {"misbehaves": staticmethod(what)})
    agent = kind(agent_kind("dqn").config(**SMALL), DQN[1], device="cpu", seed=0)
    agent.at = frozenset(at)
    agent.capture_by(CudaCapture(CPU, agent.generators))
    return agent


def learn_beside_an_eager_one(
    cuda: StrictCuda, agent: Any, make_batch: Any, steps: int = 8
) -> None:
    """Hold an agent's state against that of one whose steps run as they are."""
    eager = agent_kind("dqn").build_agent(
        agent_kind("dqn").config(**SMALL), DQN[1], device="cpu", seed=0
    )
    batches = [make_batch(DQN[1], 8, seed) for seed in range(steps)]
    with cuda:
        learn(agent, batches, steps)
        cuda.check()
    learn(eager, batches, steps)
    assert same_state(agent, eager)


STEP_KINDS = 2  # recorded and not, in `learn`


@pytest.mark.parametrize(
    ("at", "graphs"), [((1,), 1), ((1, 2, 3), 1), ((4,), 0)], ids=["first", "early", "last"]
)
def test_only_the_last_warm_up_says_if_a_step_waits(
    at: tuple[int, ...],
    graphs: int,
    cuda: StrictCuda,
    make_batch: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first steps may: tables are built, networks compiled, caches filled. Of the steps here
    the first is recorded, the next three are not."""
    agent = misbehaving(reads_a_scalar, *at)
    learn_beside_an_eager_one(cuda, agent, make_batch)
    assert cuda.captured == graphs
    said = [line for line in caplog.messages if "it waits for the device at" in line]
    assert len(said) == (not graphs)
    assert cuda._mode == "default"


def test_a_wait_in_another_thread_is_not_the_steps(cuda: StrictCuda, make_batch: Any) -> None:
    def waits(batch: Any) -> None:
        def other() -> None:
            warnings.warn("called a synchronizing CUDA operation (Triggered ...)", stacklevel=1)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    agent = misbehaving(waits, 4)
    learn_beside_an_eager_one(cuda, agent, make_batch)
    assert cuda.captured == 1


def test_other_warnings_of_a_step_go_where_they_would_have_gone(
    cuda: StrictCuda, make_batch: Any
) -> None:
    agent = misbehaving(warns, 4)
    with pytest.warns(UserWarning, match="the network's own warning"):
        learn_beside_an_eager_one(cuda, agent, make_batch)
    assert cuda.captured == 1


@pytest.mark.parametrize("registers", [True, False], ids=["torch-2.6", "torch-2.13"])
@pytest.mark.parametrize("how", ["refused", "waits", "raises"])
def test_a_capture_that_fails_leaves_agent_stream_allocator_and_generators_as_they_were(
    how: str,
    registers: bool,
    monkeypatch: pytest.MonkeyPatch,
    make_batch: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cuda = StrictCuda(monkeypatch, registers=registers)
    what = {"refused": lambda _: None, "waits": reads_a_scalar, "raises": refuses}[how]
    agent = misbehaving(what, 5)  # the one that is captured; step 6 is as it is
    agent.generators = (torch.Generator("cuda"),)
    agent.capture_by(CudaCapture(CPU, agent.generators))
    cuda.fails = "operation not permitted" if how == "refused" else ""
    learn_beside_an_eager_one(cuda, agent, make_batch)
    (line,) = caplog.messages
    said = {"raises": "no step like this", "waits": "not permitted when stream is capturing"}
    assert said.get(how, "operation not permitted") in line
    assert "\n" not in line
    assert cuda.captured == 0


def test_memory_that_ends_in_a_capture_is_the_callers_to_find(
    cuda: StrictCuda, make_batch: Any
) -> None:
    agent = misbehaving(is_too_large, 5)
    batches = [make_batch(DQN[1], 8, seed) for seed in range(8)]
    with cuda, pytest.raises(torch.OutOfMemoryError, match=r"2\.00 GiB"):
        learn(agent, batches, 8)
    with cuda:
        cuda.check()
        agent.capture_by(CudaCapture(CPU, agent.generators))
        learn(agent, batches, 8)
        cuda.check()
    assert cuda.captured == 1


@pytest.mark.parametrize("case", [PIXEL_SAC, IQN, DQN], ids=lambda case: case[0])
def test_only_generators_that_draw_are_registered(
    case: Case, cuda: StrictCuda, make_batch: Any
) -> None:
    agent = captured(case)
    expected = {"sac": 2, "iqn": 1, "dqn": 0}[case[0]]
    assert len(agent.generators) == expected
    with cuda:
        for seed in range(6):
            agent.opt(make_batch(case[1], 8, seed))
    assert cuda.captured


def test_a_graph_and_its_generators_are_made_on_the_device_of_the_step(
    monkeypatch: pytest.MonkeyPatch, make_batch: Any
) -> None:
    cuda = StrictCuda(monkeypatch, graphs_on=1)
    agent = build(IQN)
    agent.capture_by(CudaCapture(torch.device("cuda", 1), agent.generators))
    with cuda:
        for seed in range(6):
            agent.opt(make_batch(IQN[1], 8, seed))
        cuda.check()
    assert agent._captured.reason == ""
    assert cuda.captured


@pytest.mark.parametrize("action", [gym.spaces.Discrete(3), BOX], ids=["categories", "normal"])
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_all_kinds_of_steps_on_a_block_are_replayed(
    action: gym.Space[Any], memory: str, cuda: StrictCuda
) -> None:
    """The first of a block, of a pass, the last, and those between, recorded or not."""
    spaces = Spaces(VECTOR, action)
    options = {"clip_schedule": SCHEDULE, "schedule": SCHEDULE, "memory": memory, "memory_size": 6}
    case: Case = ("appo", spaces, options)
    remembers = memory == "gru"
    further = [memory_column(6)] if remembers else []
    blocks = [random_block(spaces, 6, 4, seed, further) for seed in range(12)]

    def learn_from(agent: Any) -> list[dict[str, float]]:
        results = []
        static = BlockBatch()
        for seed, block in enumerate(blocks):
            given = minibatches(block, passes=2, size=8, seed=seed, whole_runs=remembers)
            for step, batch in enumerate(given):
                for name, tensor in batch.items():
                    static.setdefault(name, tensor.clone()).copy_(tensor)
                static.place = batch.place
                results.append(dict(agent.opt(static, record=(seed + step) % 2 == 0).record))
        return results

    eager = build(case)
    replayed = captured(case)
    with cuda:
        ours = learn_from(replayed)
        cuda.check()
    expected = learn_from(eager)
    cuda.synchronize()
    assert ours == expected
    assert replayed._captured.reason == ""
    assert replayed._captured.kinds_captured == 8
    assert same_state(eager, replayed)
