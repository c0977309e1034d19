"""Three hand-made sequences, and networks that are run over them one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Batch = dict[str, torch.Tensor]

BURN_IN, STEPS, SIZE, GAMMA = 2, 4, 6, 0.9
BURNED = [2, 0, 1]
LENGTH = [4, 2, 3]
ENDED = [False, True, False]
"""Of three sequences: one that goes on, one that terminates, and one that was truncated."""


def batch_of(
    actions: Callable[[np.random.Generator, tuple[int, int]], NDArray[Any]], padding: float = 0.0
) -> Batch:
    """The three sequences; what lies behind their ends is `padding`."""
    rng = np.random.default_rng(5)
    steps = BURN_IN + STEPS
    batch = {
        "obs": rng.uniform(-1, 1, (3, steps + 1, 3)).astype(np.float32),
        "action": actions(rng, (3, steps)),
        "reward": rng.normal(size=(3, steps)).astype(np.float32),
        "terminated": np.zeros((3, steps), np.bool_),
        "memory": rng.uniform(-1, 1, (3, SIZE)).astype(np.float32),
        "burned": np.array(BURNED),
        "length": np.array(LENGTH),
        "learned": np.zeros((3, steps), np.bool_),
    }
    for row, (burned, length, ended) in enumerate(zip(BURNED, LENGTH, ENDED, strict=True)):
        end = burned + length
        batch["learned"][row, burned:end] = True
        batch["obs"][row, end + 1 :] = padding
        batch["reward"][row, end:] = padding
        batch["terminated"][row, end - 1 :] = ended
    return {name: torch.from_numpy(column) for name, column in batch.items()}


def memories(network: Any, batch: Batch, stored: torch.Tensor | None = None) -> list[list[Any]]:
    """The memory ``(1, H)`` after each position of each sequence, from its burn-in's end on.

    Args:
        network: has `remember`.
        batch: of `batch_of`.
        stored: the memory at the sequences' first positions; the batch's if it is not given.
    """
    stored = batch["memory"] if stored is None else stored
    after: list[list[Any]] = []
    for row in range(3):
        state = stored[row : row + 1]
        of_row = []
        for position in range(BURNED[row] + LENGTH[row] + 1):
            state = network.remember({"obs": batch["obs"][row : row + 1, position]}, state)
            if position < BURNED[row]:
                state = state.detach()
            else:
                of_row.append(state)
        after.append(of_row)
    return after


def return_of(batch: Batch, row: int, t: int, n: int) -> tuple[Any, int, bool]:
    """The sum of up to `n` discounted rewards from a sequence's row t on, of how many rows, and
    True where the episode terminates behind them."""
    m = min(n, LENGTH[row] - t)
    first = BURNED[row] + t
    rewards = sum(GAMMA**k * batch["reward"][row, first + k] for k in range(m))
    return rewards, m, bool(batch["terminated"][row, first + m - 1])


def mean_of(weights: torch.Tensor, values: list[list[Any]]) -> Any:
    """The mean over all rows of their values, each times its sequence's weight."""
    weighed = [w * value for w, row in zip(weights, values, strict=True) for value in row]
    return sum(weighed) / len(weighed)


def assert_errors(td_errors: torch.Tensor | None, errors: list[list[Any]]) -> None:
    """Each sequence has 0.9 of the largest of its rows' absolute errors and 0.1 of their mean."""
    assert td_errors is not None
    for error, row in zip(td_errors, errors, strict=True):
        sizes = torch.stack([torch.as_tensor(each) for each in row]).detach().abs()
        expected = float(0.9 * sizes.max() + 0.1 * sizes.mean())
        np.testing.assert_allclose(error.item(), expected, rtol=1e-4)


def assert_gradients(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    """Two networks have the same gradients; where one has none the other's is 0."""
    expected = {name: p.grad for name, p in theirs.named_parameters() if p.requires_grad}
    assert expected
    for name, p in ours.named_parameters():
        if name in expected:
            theirs_of = expected[name]
            assert p.grad is not None
            assert theirs_of is not None
            torch.testing.assert_close(p.grad, theirs_of, rtol=1e-3, atol=1e-6, msg=name)
