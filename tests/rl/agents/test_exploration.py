"""Actors explore as they are told, each on its own rung."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vedette_rl.agents.exploration import (
    Exploration,
    ExplorationConfig,
    exploration_rank,
    exploration_ranks,
    make_exploration,
)
from vedette_rl.errors import UnknownNameError


def test_exploration_ranks_cover_evenly_however_many_there_are() -> None:
    assert exploration_ranks(0, 7).tolist() == [0.5, 0.25, 0.75, 0.125, 0.625, 0.375, 0.875]
    for count in (1, 3, 16, 100, 1000):
        places = np.sort(exploration_ranks(0, count))
        gaps = np.diff(np.concatenate([[0.0], places, [1.0]]))
        assert gaps.min() > 0
        assert gaps.max() < 2.1 / (count + 1)


def test_a_position_does_not_depend_on_who_else_is_there() -> None:
    assert exploration_ranks(5, 3).tolist() == [exploration_rank(i) for i in (5, 6, 7)]


def test_the_ladder_is_ape_xs() -> None:
    exploration = Exploration(ExplorationConfig(kind="ladder"), np.array([0.0, 0.5, 1.0]), 0)
    np.testing.assert_allclose(exploration.epsilon(0), [0.4, 0.4**4.5, 0.4**8])
    assert exploration.epsilon(10**9).tolist() == exploration.epsilon(0).tolist()


def test_one_actor_alone_has_a_finite_epsilon() -> None:
    config = ExplorationConfig(kind="ladder")
    epsilon = Exploration(config, exploration_ranks(0, 1), 0).epsilon(0)
    assert epsilon.tolist() == [pytest.approx(0.4**4.5)]


@pytest.mark.parametrize(("version", "epsilon"), [(0, 1.0), (50, 0.55), (100, 0.1), (10**12, 0.1)])
def test_the_linear_schedule_follows_the_models_version(version: int, epsilon: float) -> None:
    config = ExplorationConfig(kind="linear", epsilon_final=0.1, epsilon_steps=100)
    found = Exploration(config, np.zeros(2), 0).epsilon(version)
    np.testing.assert_allclose(found, [epsilon, epsilon])


def test_auto_without_a_fleet_to_know_is_linear() -> None:
    clock = {"epsilon_final": 0.1, "epsilon_steps": 100}
    made = [
        Exploration(ExplorationConfig(kind=k, **clock), np.zeros(2), 0) for k in ("auto", "linear")
    ]
    for version in (0, 50, 100):
        assert made[0].epsilon(version).tolist() == made[1].epsilon(version).tolist()


def test_a_schedule_of_no_steps_is_over() -> None:
    config = ExplorationConfig(kind="linear", epsilon_final=0.1, epsilon_steps=0)
    assert Exploration(config, np.zeros(1), 0).epsilon(0).tolist() == [pytest.approx(0.1)]


def test_epsilon_is_the_share_of_random_actions() -> None:
    config = ExplorationConfig(kind="constant", epsilon_final=0.3)
    exploration = Exploration(config, np.zeros(30_000), 0)
    action = exploration.choose(np.tile(np.array([[0, 1, 0]], np.float32), (30_000, 1)), 0)
    np.testing.assert_allclose(np.bincount(action) / 30_000, [0.1, 0.8, 0.1], atol=0.01)


def test_each_environment_has_its_own_epsilon() -> None:
    ranks = np.repeat([0.0, 1.0], 5000)
    exploration = Exploration(ExplorationConfig(kind="ladder", epsilon_alpha=50), ranks, 0)
    action = exploration.choose(np.tile(np.array([[0, 1]], np.float32), (10_000, 1)), 0)
    assert 0.15 < (action[:5000] == 0).mean() < 0.25
    assert (action[5000:] == 0).mean() == 0


def test_an_acting_policy_explores_less_as_models_grow_newer() -> None:
    config = ExplorationConfig(kind="linear", epsilon_final=0.0, epsilon_steps=100)
    exploration = Exploration(config, np.zeros(20_000), 0)
    q = np.tile(np.array([[0, 1]], np.float32), (20_000, 1))
    shares = [(exploration.choose(q, version) == 0).mean() for version in (0, 50, 100, 0)]
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.0, 0.5], atol=0.02)


def test_softmax_draws_in_proportion() -> None:
    config = ExplorationConfig(kind="softmax", temperature=2.0)
    exploration = Exploration(config, np.zeros(40_000), 0)
    q = np.array([0, 2, 4], np.float32)
    shares = np.bincount(exploration.choose(np.tile(q, (40_000, 1)), 0)) / 40_000
    np.testing.assert_allclose(shares, np.exp(q / 2) / np.exp(q / 2).sum(), atol=0.01)


class Chosen:
    """An exploration of a user's own, which returns whatever it is told to."""

    returned: Any = None

    def __init__(self, *_: object) -> None:
        """It needs nothing."""

    def choose(self, q_EA: Any, version: int) -> Any:
        return self.returned


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([0.0, 1.0], r"a whole number for each of 2 environments, not float64 of shape \(2,\)"),
        ([0], r"a whole number for each of 2 environments, not int64 of shape \(1,\)"),
        ([0, 3], r"actions from 0 to 2, not \[0, 3\]"),
        ([-1, 0], r"actions from 0 to 2, not \[-1, 0\]"),
    ],
)
def test_an_own_exploration_that_chooses_no_action_is_named(
    returned: list[float], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Chosen, "returned", returned)
    config = ExplorationConfig(kind=f"{__name__}:Chosen")
    exploration = make_exploration(config, np.zeros(2), 0)
    with pytest.raises(UnknownNameError, match=f"Chosen': its choose must return {said}"):
        exploration.choose(np.zeros((2, 3), np.float32), 0)


class Hesitant(Exploration):
    """A subclass of a user's own, which leaves the epsilon to `Exploration`."""


class Bold(Exploration):
    """A subclass with an epsilon of its own."""

    def epsilon(self, version: int) -> Any:
        return np.array([0.0, 1.0])


class Fixed(Exploration):
    """A subclass that chooses by itself."""

    def choose(self, q_EA: Any, version: int) -> Any:
        return np.zeros(len(q_EA), np.int64)


def test_a_subclass_explores_by_its_own_epsilon_and_never_silently_by_none() -> None:
    def chosen(kind: type[Exploration], rows: int = 2) -> Any:
        config = ExplorationConfig(kind=f"{__name__}:{kind.__name__}")
        q = np.tile(np.array([0.0, 0.0, 1.0], np.float32), (rows, 1))
        exploration = make_exploration(config, np.zeros(rows), 0)
        return np.array([exploration.choose(q, version) for version in range(300)])

    with pytest.raises(UnknownNameError, match=r"Hesitant'.*: define epsilon\(self, version\)"):
        chosen(Hesitant)
    greedy, bold = chosen(Bold).T
    assert set(greedy) == {2}
    assert 0.5 < (bold != 2).mean() < 0.8  # 2 of 3 random actions are others
    assert not chosen(Fixed).any()


def test_exploration_is_exact_for_a_seed_and_another_for_another() -> None:
    q = np.zeros((50, 4), np.float32)
    config = ExplorationConfig(kind="constant", epsilon_final=1.0)
    one, same, other = (Exploration(config, np.zeros(50), seed).choose(q, 0) for seed in (1, 1, 2))
    assert one.tolist() == same.tolist() != other.tolist()
