"""Losses over windows: by hand, and beside transitions of the step processor `n_step`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vedette_rl.agents.discounts import Discounts
from vedette_rl.agents.windows import Window, n_step_targets, row_weights, sequence_errors
from vedette_rl.core import Step
from vedette_rl.steps import NStep

GAMMA = 0.5
NAN = float("nan")


def window_of(reward: list[list[float]], lengths: list[int], ended: list[bool]) -> Window:
    """Of rows that are NaN behind each window's end; `ended` windows terminate there."""
    rewards = torch.tensor(reward)
    steps = rewards.shape[1]
    terminated = torch.zeros(rewards.shape, dtype=torch.bool)
    for row, (length, is_over) in enumerate(zip(lengths, ended, strict=True)):
        terminated[row, length - 1 :] = is_over  # padding repeats the last row
    batch = {
        "action": torch.zeros(rewards.shape, dtype=torch.int64),
        "reward": rewards,
        "terminated": terminated,
        "burned": torch.zeros(len(lengths), dtype=torch.int64),
        "length": torch.tensor(lengths),
    }
    return Window.of(batch, steps)


def test_targets_are_those_computed_by_hand() -> None:
    window = window_of(
        [[1.0, 2.0, 4.0, 8.0], [1.0, 2.0, NAN, NAN], [1.0, 2.0, NAN, NAN]],
        [4, 2, 2],
        [False, False, True],
    )
    v = torch.tensor([[10.0, 20.0, 30.0, 40.0, 50.0]] * 3)
    returns, discounts, value = n_step_targets(window, v, 3, GAMMA)
    target = returns + discounts * value
    assert target[0].tolist() == [
        1 + 2 / 2 + 4 / 4 + 40 / 8,
        2 + 4 / 2 + 8 / 4 + 50 / 8,
        4 + 8 / 2 + 50 / 4,  # the window goes on: by what is behind its last row
        8 + 50 / 2,
    ]
    assert target[1, :2].tolist() == [1 + 2 / 2 + 30 / 4, 2 + 30 / 2], "cut: its value counts"
    assert target[2, :2].tolist() == [1 + 2 / 2, 2], "terminated: no value beyond"


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_targets_are_those_of_n_step_transitions(n: int, ends: str) -> None:
    """A window of a whole episode, beside the rows that the step processor makes of it."""
    rng = np.random.default_rng(n)
    steps = 5
    reward = rng.normal(size=steps).astype(np.float32)
    dtype = np.dtype([("obs", "f4", (1,)), ("action", "i8")])
    processor = NStep(n, GAMMA, 1, dtype)
    rows = []
    for t in range(steps):
        is_last = np.array([t == steps - 1])
        no = np.array([False])
        step = Step(
            obs={"obs": np.array([[t]], np.float32)},
            action=np.zeros(1, np.int64),
            reward=reward[t : t + 1],
            next_obs={"obs": np.array([[t + 1]], np.float32)},
            terminated=is_last if ends == "terminated" else no,
            truncated=is_last if ends == "truncated" else no,
            init_obs={"obs": np.array([[t + 1]], np.float32)},
            valid=np.array([True]),
        )
        made = processor.process(step)
        rows += [
            {name: column[k] for name, column in made.items()} for k in range(len(made["obs"]))
        ]
    rows.sort(key=lambda row: float(row["obs"][0]))
    v = rng.normal(size=steps + 1).astype(np.float32)
    discounts = Discounts(GAMMA, "cpu")(
        torch.tensor([int(row["n_steps"]) for row in rows]),
        torch.tensor([bool(row["terminated"]) for row in rows]),
    )
    expected = [
        row["reward"] + float(discount) * v[int(row["next_obs"][0])]
        for row, discount in zip(rows, discounts, strict=True)
    ]
    padded = np.concatenate([reward, [np.nan, np.nan]]).astype(np.float32)
    window = window_of([padded.tolist()], [steps], [ends == "terminated"])
    values = torch.from_numpy(np.concatenate([v, [9.0, 9.0]]).astype(np.float32))[None]
    returns, factors, value = n_step_targets(window, values, n, GAMMA)
    got = (returns + factors * value)[0, :steps]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_window_begins_behind_its_burn_in() -> None:
    batch = {
        "action": torch.arange(12).view(2, 6),
        "reward": torch.arange(12.0).view(2, 6),
        "terminated": torch.tensor([[False] * 6, [False, False, True, True, True, True]]),
        "burned": torch.tensor([2, 1]),
        "length": torch.tensor([4, 2]),
    }
    window = Window.of(batch, 4)
    assert window.action.tolist() == [2, 3, 4, 5, 7, 8, 9, 10]
    assert window.reward.tolist() == [[2.0, 3.0, 4.0, 5.0], [7.0, 8.0, 0.0, 0.0]]
    assert window.terminated.tolist() == [[False] * 4, [False, True, False, False]]
    assert window.learned.tolist() == [[True] * 4, [True, True, False, False]]
    longest = Window.of(batch, 6)  # where the burn-in that there may be is not known
    assert longest.reward[:, :4].equal(window.reward)
    assert longest.learned.sum() == 6


def test_row_weights_make_a_mean_that_of_the_learned_rows() -> None:
    learned = torch.tensor([[True, True], [True, False]])
    losses = torch.tensor([1.0, 2.0, 6.0, 1e9])
    assert (row_weights(learned, None) * losses).mean().item() == 3.0
    weighted = row_weights(learned, torch.tensor([1.0, 0.5]))
    assert (weighted * losses).mean().item() == 2.0


def test_a_sequence_has_the_mixture_of_its_largest_and_mean_error() -> None:
    errors = torch.tensor([[1.0, 3.0], [2.0, NAN]])
    learned = torch.tensor([[True, True], [True, False]])
    expected = [0.9 * 3 + 0.1 * 2, 2.0]
    np.testing.assert_allclose(sequence_errors(errors, learned), expected, rtol=1e-6)
