"""The checks of `scripts/bench_gpu`: what no CPU can show, each with a tolerance and a verdict.

* ``dqn`` ``iqn`` ``sac`` ``td3``: captured steps beside the same agent's steps as they are, from
  one seed: backward passes, generators, streams.
* ``bfloat16``: the same of SAC whose networks compute in bfloat16.
* ``copies``: batches by a copy of the replay and by pinned memory, and models that are copied while
  steps go on, beside the host's, bit by bit.
* ``gather``: batches of rows and of sequences that graphs gather, beside the host's, bit by bit.
* ``failure``: a step that waits while it is captured leaves the device as it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from vedette_rl.agents.captured_step import Due, SteppedAgent
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import empty_columns
from vedette_rl.core.columns import ACTOR, BEGINS, ENV, MANAGER, SEQUENCE_KEYS, TIME
from vedette_rl.device.cuda_graphs import CudaCapture
from vedette_rl.device.host_copy import snapshot
from vedette_rl.device.loader import CpuLoader, PinnedLoader, RingLoader, SideStream
from vedette_rl.device.ring import DeviceRing
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.networks.torch_network import compute_in_bfloat16
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.drawn_sequences import UniformSequences
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.storage.buffer_pool import BufferPool

STEPS, QUICK_STEPS = 200, 12
EARLY = 30
"""Steps in which differences have not grown yet."""

EARLY_TOLERANCE, TOLERANCE = 1e-3, 5e-2
"""Of the largest value: sums in another order differ by less, another step by more."""

_ROWS = 64
_BOX = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
_VECTOR = gym.spaces.Box(-1.0, 1.0, (8,), np.float32)
SPACES = {
    "dqn": Spaces(_VECTOR, gym.spaces.Discrete(4)),
    "iqn": Spaces(_VECTOR, gym.spaces.Discrete(4)),
    "sac": Spaces(_VECTOR, _BOX),
    "td3": Spaces(_VECTOR, _BOX),
}


class Distance:
    """The largest difference of values, as a part of the largest value; of what is no number or
    infinite, infinity."""

    def __init__(self) -> None:
        self._apart = 0.0
        self._largest = 0.0

    def add(self, ours: Any, theirs: Any) -> None:
        """Compare two tensors or arrays of one shape."""
        one, other = (np.asarray(_on_host(x), np.float64) for x in (ours, theirs))
        if not (np.isfinite(one).all() and np.isfinite(other).all()):
            self._apart = np.inf
            return
        self._apart = max(self._apart, float(np.abs(one - other).max(initial=0.0)))
        self._largest = max(self._largest, float(np.abs(other).max(initial=0.0)))

    @property
    def value(self) -> float:
        """Of all that were added."""
        return self._apart / max(self._largest, 1e-6)


def _on_host(value: Any) -> Any:
    return value.detach().float().cpu().numpy() if isinstance(value, torch.Tensor) else value


def check_agent(
    name: str, device: torch.device, *, quick: bool, precision: str = "float32"
) -> dict[str, Any]:
    """Compare captured steps with steps as they are: TD errors, records, and the model at the end.

    ``reason`` says why steps are not captured, where they are not; on a GPU the check fails then.
    """
    kind = agent_kind(name)
    config = kind.config(target_update_interval=3)
    plain, captured = (
        kind.build_agent(config, SPACES[name], device=str(device), seed=1) for _ in range(2)
    )
    assert isinstance(plain, SteppedAgent)
    assert isinstance(captured, SteppedAgent)
    if precision == "bfloat16":
        for network in (*plain.networks, *captured.networks):
            compute_in_bfloat16(network)
    on_gpu = device.type == "cuda"
    if on_gpu:
        captured.capture_by(CudaCapture(device, captured.generators))
    early, late, records, models = (Distance() for _ in range(4))
    rng = np.random.default_rng(0)
    for step in range(QUICK_STEPS if quick else STEPS):
        batch = random_batch(SPACES[name], rng, device)
        weights = torch.linspace(0.5, 1.0, _ROWS, device=device)
        ours, theirs = (
            agent.opt(batch, weights, record=step % 10 == 0) for agent in (captured, plain)
        )
        for distance in (late, early) if step < EARLY else (late,):
            distance.add(ours.td_errors, theirs.td_errors)
        if theirs.record:
            names = [*theirs.record]
            records.add([ours.record[n] for n in names], [theirs.record[n] for n in names])
    arrays = plain.model_info().arrays
    for array, other in captured.model_info().arrays.items():
        models.add(other, arrays[array])
    held = captured._captured
    reason = held.reason if held is not None else ""
    far = max(late.value, records.value, models.value)
    loose = 10.0 if precision == "bfloat16" else 1.0
    ok = early.value <= loose * EARLY_TOLERANCE and far <= loose * TOLERANCE and not reason
    return {
        "done": True,
        "ok": bool(ok),
        "td_errors_apart_early": early.value,
        "td_errors_apart": late.value,
        "records_apart": records.value,
        "model_apart": models.value,
        "tolerance_early": loose * EARLY_TOLERANCE,
        "tolerance": loose * TOLERANCE,
        "kinds_captured": held.kinds_captured if held is not None else 0,
        "reason": reason or ("" if on_gpu else "no GPU"),
    }


def random_batch(
    spaces: Spaces, rng: np.random.Generator, device: torch.device
) -> dict[str, torch.Tensor]:
    """A batch of random numbers on the device."""
    columns = _random_columns(spaces, rng, _ROWS)
    return {name: torch.from_numpy(array).to(device) for name, array in columns.items()}


def _random_columns(spaces: Spaces, rng: np.random.Generator, rows: int) -> dict[str, Any]:
    (obs_size,) = spaces.observation.shape or ()
    discrete = isinstance(spaces.action, gym.spaces.Discrete)
    return {
        "obs": rng.standard_normal((rows, obs_size), np.float32),
        "next_obs": rng.standard_normal((rows, obs_size), np.float32),
        "action": rng.integers(0, 4, rows) if discrete else rng.random((rows, 3), np.float32),
        "reward": rng.standard_normal(rows, np.float32),
        "terminated": rng.random(rows) < 0.1,
        "truncated": np.zeros(rows, np.bool_),
        "n_steps": np.ones(rows, np.uint8),
    }


def check_copies(device: torch.device, *, quick: bool) -> dict[str, Any]:
    """Compare batches and models that were copied beside a busy device with the host's."""
    spaces = SPACES["sac"]
    ring = MemoryRing(transition_dtype(spaces), 4096, guard=1024)
    rng = np.random.default_rng(0)

    def insert(rows: int) -> None:
        columns = empty_columns(transition_dtype(spaces), rows)
        columns.update(_random_columns(spaces, rng, rows))
        ring.append(columns, rows)
        ring.commit()

    insert(1024)
    plain, copied, pinned = (
        PrioritizedReplay(ring, np.random.default_rng(5), ReplayConfig()) for _ in range(3)
    )
    on_gpu = device.type == "cuda"
    reference = CpuLoader(plain, _ROWS, torch.device("cpu"))
    by_ring = RingLoader(copied, DeviceRing(ring, device, clock=itertools.count().__next__), _ROWS)
    by_pinned = PinnedLoader(pinned, _ROWS, SideStream(device)) if on_gpu else None
    load = torch.ones(1024, 1024, device=device)
    models, wrong = [], 0
    vector = torch.zeros(1 << 20, device=device)
    for n in range(QUICK_STEPS if quick else STEPS):
        load = load @ load / 1024.0  # so that the host is ahead
        expected = reference.load()
        kept = {name: tensor.clone() for name, tensor in expected.batch.items()}
        found = [by_ring.load().batch]
        if by_pinned is not None:
            found.append(by_pinned.load().batch)
            by_pinned.draw_ahead()
        vector += 1.0
        models.append((n + 1.0, snapshot(vector, BufferPool())))
        for batch in found:
            wrong += sum(not torch.equal(batch[name].cpu(), kept[name]) for name in kept)
        if by_pinned is None and n % 3 == 0:  # the pinned one draws a batch ahead
            insert(300)
    for number, model in models:
        array = model.array()
        wrong += not bool((array == number).all())
    return {"done": True, "ok": wrong == 0, "wrong": wrong, "reason": "" if on_gpu else "no GPU"}


def check_gather(device: torch.device, *, quick: bool) -> dict[str, Any]:
    """Compare batches that graphs gather with the host's: rows, and sequences. Rows come in before
    each, and the ring wraps around."""
    spaces = SPACES["sac"]
    steps = transition_dtype(spaces, SEQUENCE_KEYS)
    dtype = np.dtype([*steps.descr, (MANAGER, "<i4"), (ACTOR, "<i4")])
    ring = MemoryRing(dtype, 4096, guard=1024)
    rng = np.random.default_rng(0)

    def insert(rows: int) -> None:
        columns = empty_columns(dtype, rows)
        columns.update(_random_columns(spaces, rng, rows))
        number = np.arange(ring.inserted, ring.inserted + rows)
        columns[MANAGER][:] = columns[ACTOR][:] = 0
        columns[ENV][:] = number % 2
        columns[TIME][:] = number // 2
        columns[BEGINS][:] = number // 2 % 16 == 0
        columns["terminated"][:] = number // 2 % 16 == 15
        ring.append(columns, rows)
        ring.commit()

    def replays(name: str) -> UniformReplay:
        drawn = np.random.default_rng(5)
        if name == "rows":
            return UniformReplay(ring, drawn)
        return UniformSequences(ring, drawn, ReplayConfig(sequence=8, burn_in=4))

    insert(1024)
    on_gpu = device.type == "cuda"
    loaders = {}
    for name in ("rows", "sequences"):
        capture = CudaCapture(device) if on_gpu else None
        copy = DeviceRing(ring, device, clock=itertools.count().__next__, capture=capture)
        by_graph = RingLoader(replays(name), copy, _ROWS)
        loaders[name] = CpuLoader(replays(name), _ROWS, torch.device("cpu")), by_graph
    load = torch.ones(1024, 1024, device=device)
    kept: list[tuple[str, dict[str, torch.Tensor], dict[str, torch.Tensor]]] = []
    for _ in range(QUICK_STEPS if quick else STEPS):
        load = load @ load / 1024.0  # so that the host is ahead
        insert(300)
        for name, (reference, by_graph) in loaders.items():
            expected, found = (
                {key: tensor.clone() for key, tensor in loader.load().batch.items()}
                for loader in (reference, by_graph)
            )
            kept.append((name, expected, found))
    wrong = dict.fromkeys(loaders, 0)
    for name, expected, found in kept:
        wrong[name] += expected.keys() != found.keys()
        wrong[name] += sum(not torch.equal(found[key].cpu(), expected[key]) for key in expected)
    captured = {name: by_graph.is_captured for name, (_, by_graph) in loaders.items()}
    return {
        "done": True,
        "ok": not any(wrong.values()) and (all(captured.values()) or not on_gpu),
        "wrong": wrong,
        "captured": captured,
        "reason": "" if on_gpu else "no GPU",
    }


def check_failure(device: torch.device, *, quick: bool) -> dict[str, Any]:
    """Let a capture fail: the stream, the allocator and the generators are as before, and another
    agent's steps are captured."""
    if device.type != "cuda":
        return {"done": True, "ok": True, "reason": "no GPU"}
    kind = agent_kind("sac")
    agent = kind.build_agent(kind.config(), SPACES["sac"], device=str(device), seed=1)
    assert isinstance(agent, SteppedAgent)
    step, begun = agent.step, itertools.count(1)
    all_parts = Due(policy=True, target=True)

    def waits(batch: Any, weights: Any, due: Any) -> Any:
        if next(begun) == 4:  # the one that is captured
            batch["reward"].sum().item()
        return step(batch, weights, due)

    agent.step = waits  # type: ignore[method-assign]
    agent.due = lambda *, record: all_parts  # type: ignore[method-assign]
    agent.capture_by(CudaCapture(device, agent.generators))
    stream = torch.cuda.current_stream(device)
    rng = np.random.default_rng(0)
    for _ in range(8):
        agent.opt(random_batch(SPACES["sac"], rng, device))
    held = agent._captured
    assert held is not None
    failed = bool(held.reason)
    restored = torch.cuda.current_stream(device) == stream
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    model_bytes = 0
    for _ in range(QUICK_STEPS if quick else STEPS):
        model_bytes = sum(array.nbytes for array in agent.model_info().arrays.values())
    torch.cuda.synchronize(device)
    grown = torch.cuda.memory_allocated(device) - before
    after = check_agent("sac", device, quick=True)
    ok = failed and restored and grown <= 4 * model_bytes + (1 << 20) and bool(after["ok"])
    return {
        "done": True,
        "ok": ok,
        "failed_as_meant": failed,
        "reason": held.reason,
        "stream_restored": restored,
        "grown_bytes": grown,
        "captured_afterwards": after,
    }


def _agent(name: str, precision: str = "float32") -> Callable[..., dict[str, Any]]:
    def check(device: torch.device, *, quick: bool) -> dict[str, Any]:
        return check_agent(name, device, quick=quick, precision=precision)

    return check


CHECKS: dict[str, Callable[..., dict[str, Any]]] = {
    **{name: _agent(name) for name in ("sac", "dqn", "iqn", "td3")},
    "copies": check_copies,
    "gather": check_gather,
    "bfloat16": _agent("sac", "bfloat16"),
    "failure": check_failure,
}
