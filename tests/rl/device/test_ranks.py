"""Two ranks do what one process does on the whole batch. This file is the ranks' program, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from every_agent import OF_SAMPLES  # of tests/support

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import empty_columns
from vedette_rl.device import ranks
from vedette_rl.device.loader import RankLoader, make_loader
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay

CPU = torch.device("cpu")
VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
PIXELS = gym.spaces.Box(0, 255, (2, 12, 12), np.uint8)
BOX = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
CASES: dict[str, tuple[str, Spaces, dict[str, Any]]] = {
    "dqn": ("dqn", Spaces(VECTOR, gym.spaces.Discrete(3)), {"max_grad_norm": 0.5}),
    "iqn": ("iqn", Spaces(VECTOR, gym.spaces.Discrete(3)), {"target_update_interval": 4}),
    "sac": ("sac", Spaces(VECTOR, BOX), {"critic_architecture": "layer_norm"}),
    "crossq": ("sac", Spaces(VECTOR, BOX), {}),
    "redq": (
        "sac",
        Spaces(VECTOR, BOX),
        {
            "critic_architecture": "mlp",
            "n_critics": 3,
            "critics_in_target": 2,
            "policy_delay": 1,
        },
    ),
    "td3": ("td3", Spaces(VECTOR, BOX), {}),
    "pixels": (
        "sac",
        Spaces(PIXELS, BOX),
        {"critic_architecture": "mlp", "image_features": 8, "convolutions": "small"},
    ),
}
ROWS = 200
BATCH = 16
STEPS = 40
RECORD = 8


def filled_ring(spaces: Spaces) -> MemoryRing:
    rng = np.random.default_rng(7)
    ring = MemoryRing(transition_dtype(spaces), 256)
    rows = empty_columns(transition_dtype(spaces), ROWS)
    for column in rows.values():
        high = 2 if column.dtype == bool else 3 if column.dtype.kind in "ui" else None
        values = rng.integers(0, high, column.shape) if high else rng.normal(size=column.shape)
        column[...] = values
    rows["n_steps"][:] = rng.integers(1, 4, ROWS)
    ring.append(rows, ROWS)
    ring.commit()
    return ring


def learn(case: str) -> dict[str, Any]:
    """Train, as this rank or as the only one; returns all that is learned."""
    name, spaces, options = CASES[case]
    kind = agent_kind(name)
    number = ranks.ranks().number
    config = kind.config(**{"hidden_sizes": (16, 16), "batch_size": BATCH, **options})
    agent: Any = kind.build_agent(config, spaces, device="cpu", seed=3)
    rows = filled_ring(spaces)
    rng = np.random.default_rng(5)
    replay = UniformReplay(rows, rng)
    if not number:
        replay = PrioritizedReplay(rows, rng, ReplayConfig(prioritized=True))
    loader = make_loader(replay, BATCH, CPU)
    records = []
    for step in range(STEPS):
        loaded = loader.follow() if number else loader.load()
        result = agent.opt(loaded.batch, loaded.weights, record=step % RECORD == 0)
        records += [dict(result.record)] if result.record else []
        if not number:
            replay.update_priority(loaded.indices, result.td_errors.numpy())
    if isinstance(loader, RankLoader):
        assert loader.end() is None if not number else loader.follow() is None
    found = {"agent": agent.get_state(), "records": records}
    return found | ({"priorities": replay.rng.random(4)} if not number else {})


def differences(one: Any, other: Any, name: str = "") -> dict[str, float]:
    """The largest difference of each array of two states."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        pairs = [(f"{name}.{key}", one[key], other[key]) for key in one]
    elif isinstance(one, list):
        assert len(one) == len(other)
        pairs = [(f"{name}.{k}", a, b) for k, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        first, second = np.asarray(one, np.float64), np.asarray(other, np.float64)
        return {name: float(np.abs(first - second).max(initial=0.0))}
    return {k: v for key, a, b in pairs for k, v in differences(a, b, key).items()}


def test_every_agent_of_samples_is_among_the_cases() -> None:
    assert {name for name, _, _ in CASES.values()} == {*OF_SAMPLES}


@pytest.mark.slow
def test_two_ranks_learn_as_one_process_does_on_the_whole_batch(tmp_path: Path) -> None:
    program = [sys.executable, __file__, str(tmp_path)]
    processes = [
        subprocess.Popen(program, env={**os.environ, "RANK": str(n), "WORLD_SIZE": "2"})
        for n in range(2)
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    for case in CASES:
        first, second = (torch.load(tmp_path / f"{case}.{n}", weights_only=False) for n in range(2))
        priorities = first.pop("priorities")
        assert set(differences(first, second).values()) == {0.0}, case  # bit for bit
        if case == "crossq":
            continue  # each rank normalises its part of a batch
        alone = learn(case)
        assert np.array_equal(priorities, alone.pop("priorities")), "the same draws"
        off = differences(first, alone)
        assert max(off.values()) < 2e-4, (case, {k: v for k, v in off.items() if v >= 2e-4})


def test_a_rank_that_leaves_closes_its_process_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    ranks.join(CPU, tmp_path / "rendezvous")
    try:
        monkeypatch.setattr(ranks, "_joined", ranks.Ranks(0, 2))  # as one of several
        ranks.leave()
        assert not torch.distributed.is_initialized()
        assert ranks.ranks() == ranks.Ranks()
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def test_a_process_that_has_not_joined_is_the_only_rank() -> None:
    x = torch.arange(6.0).view(3, 2)
    assert ranks.gather(x) is x
    ranks.average(x)
    assert x.tolist() == [[0, 1], [2, 3], [4, 5]]
    variance, mean = ranks.var_mean(x)
    assert (variance.tolist(), mean.tolist()) == (pytest.approx([8 / 3, 8 / 3]), [2.0, 3.0])
    one, other = (torch.Generator().manual_seed(1) for _ in range(2))
    drawn = ranks.draw_rows(torch.randn, (3, 2), one)
    assert torch.equal(drawn, torch.randn(3, 2, generator=other))


def main() -> None:
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    ranks.join(CPU, place / "rendezvous")
    for case in CASES:
        torch.save(learn(case), place / f"{case}.{ranks.ranks().number}")
    ranks.leave()
    assert ranks.ranks() == ranks.Ranks()
    assert not torch.distributed.is_initialized()  # a process group that is left may hang at exit


if __name__ == "__main__":
    main()
