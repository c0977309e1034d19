"""What is said of learning that has diverged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from configurations import configured

from vedette_protocol.ledger import Ledger
from vedette_rl.errors import DivergedError
from vedette_rl.replay.largest_values import find_largest_values
from vedette_rl.replay.rows import MemoryRing
from vedette_services.learner.trainer.divergence import (
    LEFT_OUT_MAX,
    LeftOutSteps,
    describe_largest,
    explain_divergence,
)
from vedette_services.run.ring_stamp import ActorNumbers, pack_stamp

ROW = np.dtype(
    [
        ("obs", "<f4", (3,)),
        ("reward", "<f4"),
        ("action", "<i8"),
        ("manager", "<i4"),
        ("version", "<i8"),
        ("actor", "<i4"),
    ]
)


def ring_of(rewards: list[float], capacity: int = 8) -> MemoryRing:
    ring = MemoryRing(ROW, capacity, guard=4)
    for number, reward in enumerate(rewards):
        obs = np.full((1, 3), number, np.float32)
        row = {"obs": obs, "reward": np.array([reward], np.float32), "action": np.array([10**9])}
        ring.append({**row, "manager": 0, "version": 100 + number, "actor": 5}, 1)
        ring.commit(pack_stamp(Ledger("run"), ActorNumbers()))
    return ring


def test_the_largest_value_of_each_column_of_floats_is_found_with_its_row() -> None:
    found = find_largest_values(ring_of([1.0, -1e38, 2.0]))
    assert [(one.column, one.manager, one.version) for one in found] == [
        ("reward", 0, 101),
        ("obs", 0, 102),
    ]
    assert found[0].value == pytest.approx(-1e38, rel=1e-6)
    assert found[1].value == 2.0


def test_what_is_overwritten_does_not_count() -> None:
    rewards = [1e30, *[float(number) for number in range(13)]]
    assert [one.value for one in find_largest_values(ring_of(rewards))] == [13.0, 12.0]
    assert find_largest_values(ring_of([])) == []


@pytest.mark.parametrize(
    ("settings", "there", "not_there"),
    [
        ({}, ["agent.max_grad_norm=10", "than 0.001", "env.reward_clip ("], []),
        ({"agent.max_grad_norm": 1.0}, ["than 0.001"], ["max_grad_norm"]),
        (
            {"env.reward_clip": 1.0},
            ["max_grad_norm", "a smaller env.reward_scale than 1"],
            ["_clip"],
        ),
    ],
)
def test_only_remedies_that_are_not_in_use_are_named(
    settings: dict[str, Any], there: list[str], not_there: list[str]
) -> None:
    texts = [f"{key}={value}" for key, value in settings.items()]
    rate = "agent.learning_rate=0.001"
    config = configured(rate, *texts, env="Pendulum-v1", agent="td3")
    error = DivergedError("policy/bias is not finite", 1234)
    text = str(explain_divergence(error, config, ring_of([1e38]), "run"))
    assert text.startswith(
        "learning diverged: policy/bias is not finite after optimization step 1,234. "
        "Nothing of it is saved. The largest values that can be drawn: reward 1e+38 "
        "(sent by manager number 0, 1,134 optimization steps old), obs 0 ("
    )
    assert "--new-replay" in text
    assert all(word in text for word in there), text
    assert not any(word in text for word in not_there), text


def test_without_rows_the_values_are_left_out() -> None:
    assert describe_largest(None, "run", 5) == ""
    assert describe_largest(ring_of([]), "run", 5) == ""


def test_steps_that_move_nothing_are_said_at_the_first_and_when_they_double() -> None:
    watch = LeftOutSteps(0)
    said = [
        total
        for step, total in ((1, 0), (2, 1), (9, 2), (20, 3), (30, 4))
        if watch.count(step, total)
    ]
    assert said == [1, 2, 4]


def test_learning_has_diverged_where_no_step_moves_anything() -> None:
    watch = LeftOutSteps(100)
    watch.count(110, 0)
    for steps in range(120, 110 + LEFT_OUT_MAX, 10):
        watch.count(steps, steps - 110)
    with pytest.raises(DivergedError, match=rf"last {LEFT_OUT_MAX} steps is a number"):
        watch.count(110 + LEFT_OUT_MAX, LEFT_OUT_MAX)
    mixed = LeftOutSteps(0)
    for steps in range(10, 500, 10):
        mixed.count(steps, steps - steps // 20)  # one in twenty moves them
