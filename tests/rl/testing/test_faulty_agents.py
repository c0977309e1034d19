"""The contract fails what learns wrongly from a batch, of every built-in agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent, OptResult
from vedette_rl.envs import Spaces
from vedette_rl.testing import AgentContract

Batch = Mapping[str, torch.Tensor]
Weights = torch.Tensor | None
Misreads = Callable[[Batch, Weights], tuple[Batch, Weights]]
Mistells = Callable[[torch.Tensor, Weights], torch.Tensor | None]

OBS = gym.spaces.Box(-1, 1, (4,), np.float32)
ACTIONS: dict[str, gym.Space[Any]] = {
    "dqn": gym.spaces.Discrete(3),
    "iqn": gym.spaces.Discrete(3),
    "sac": gym.spaces.Box(-1, 1, (2,), np.float32),
}


class Misreading:
    """An agent that is right about batches that it does not read right, or says it wrong."""

    def __init__(self, agent: Agent, misreads: Misreads, mistells: Mistells) -> None:
        self._agent = agent
        self._misreads = misreads
        self._mistells = mistells

    def __getattr__(self, name: str) -> Any:  # all but opt is the agent's
        return getattr(self._agent, name)

    def opt(self, batch: Batch, weights: Weights = None, *, record: bool = False) -> OptResult:
        result = self._agent.opt(*self._misreads(batch, weights), record=record)
        assert result.td_errors is not None
        return OptResult(self._mistells(result.td_errors, weights), result.record)


def as_they_are(td_errors: torch.Tensor, weights: Weights) -> torch.Tensor:
    return td_errors


def none(td_errors: torch.Tensor, weights: Weights) -> None:
    return None


def contract(name: str, misreads: Misreads, mistells: Mistells = as_they_are) -> AgentContract:
    class Contract(AgentContract):
        discount = 0.99

        def make_spaces(self) -> Spaces:
            return Spaces(OBS, ACTIONS[name])

        def make_agent(self, seed: int) -> Any:
            kind = agent_kind(name)
            options = {"critic_architecture": "layer_norm"} if name == "sac" else {}
            config = kind.config(hidden_sizes=(16, 16), normalize_observations=False, **options)
            agent = kind.build_agent(config, self.make_spaces(), device="cpu", seed=seed)
            return Misreading(agent, misreads, mistells)

    return Contract()


def messages_of_failed(contract: AgentContract, *names: str) -> dict[str, str]:
    """The contract's tests that fail, of these or of all, and what they say."""
    said = {}
    for name in names or [name for name in dir(contract) if name.startswith("test_")]:
        try:
            getattr(contract, name)()
        except AssertionError as e:
            said[name] = str(e)
    return said


def failing(contract: AgentContract) -> list[str]:
    return [*messages_of_failed(contract)]


def right(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
    return batch, weights


def no_weights(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
    return batch, None


def their_mean(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
    return batch, None if weights is None else weights.mean().expand_as(weights)


def squared_weights(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
    return batch, None if weights is None else weights**2


def one_discount(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
    return {**batch, "n_steps": torch.ones_like(batch["n_steps"])}, weights


def obs_for_next(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
    return {**batch, "next_obs": batch["obs"]}, weights


def squared_steps(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
    return {**batch, "n_steps": batch["n_steps"] ** 2}, weights


def next_rows_obs(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
    return {**batch, "next_obs": batch["next_obs"].roll(1, 0)}, weights


def no_rewards(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
    return {**batch, "reward": torch.zeros_like(batch["reward"])}, weights


WEIGHTED = "test_a_weight_of_zero_leaves_a_sample_out"
COPIED = "test_a_weight_multiplies_a_sample_once"
AFTER = "test_what_comes_after_is_seen_in_next_obs"
DISCOUNTED = "test_what_comes_after_is_discounted_by_each_step"
GEOMETRIC = "test_every_further_step_discounts_alike"
STATED = "test_the_discount_is_the_one_it_says"
LINEAR = "test_td_errors_are_linear_in_the_reward"
UNWEIGHTED = "test_td_errors_are_not_weighted"
OWN = "test_a_rows_td_error_is_its_own"


@pytest.mark.parametrize("agent", ACTIONS)
@pytest.mark.parametrize(
    ("misreads", "fails"),
    [
        (no_weights, {WEIGHTED, COPIED}),
        (their_mean, {WEIGHTED}),
        (squared_weights, {COPIED}),
        (one_discount, {DISCOUNTED}),
        (obs_for_next, {AFTER}),
    ],
)
@pytest.mark.parametrize("mistells", [as_they_are, none])
def test_what_is_misread_is_found(
    agent: str, misreads: Misreads, fails: set[str], mistells: Mistells
) -> None:
    assert fails == {*messages_of_failed(contract(agent, misreads, mistells), *fails)}


@pytest.mark.parametrize("agent", ACTIONS)
def test_another_power_of_the_discount_is_found(agent: str) -> None:
    said = contract(agent, squared_steps)
    assert [*messages_of_failed(said, GEOMETRIC, STATED)] == [GEOMETRIC, STATED]
    said.discount = None
    assert [*messages_of_failed(said, GEOMETRIC, STATED)] == [GEOMETRIC]


@pytest.mark.parametrize(
    ("misreads", "fails"), [(squared_steps, [GEOMETRIC, STATED]), (next_rows_obs, [OWN])]
)
def test_no_other_test_fails_for_it(misreads: Misreads, fails: list[str]) -> None:
    assert failing(contract("dqn", misreads)) == fails


@pytest.mark.parametrize("agent", ACTIONS)
def test_another_discount_than_it_says_is_found(agent: str) -> None:
    said = contract(agent, right)
    said.discount = 0.98
    found = messages_of_failed(said, STATED, GEOMETRIC)
    assert [*found] == [STATED]
    assert found[STATED].startswith("eight more steps discount by 0.92")
    assert "not by 0.98**8 = 0.8508" in found[STATED]


@pytest.mark.parametrize("agent", ACTIONS)
def test_a_discount_that_falls_in_a_line_is_found(agent: str) -> None:
    class Contract(type(contract(agent, right))):  # type: ignore[misc]  # a class made at run time
        def make_agent(self, seed: int) -> Any:
            faulty = super().make_agent(seed)
            faulty._agent.discounts = lambda n, ended: (1 - 0.01 * n).masked_fill(ended, 0.0)
            return faulty

    assert {*messages_of_failed(Contract(), STATED, GEOMETRIC, DISCOUNTED)} == {STATED}


@pytest.mark.parametrize("agent", ACTIONS)
@pytest.mark.parametrize(
    ("mistells", "fails"),
    [
        (lambda td_errors, weights: td_errors.clamp(max=1.0), LINEAR),
        (lambda td_errors, weights: td_errors**2, LINEAR),
        (lambda td_errors, weights: td_errors.sqrt(), LINEAR),
        (lambda td_errors, weights: td_errors * (1 if weights is None else weights), UNWEIGHTED),
        (lambda td_errors, weights: td_errors.roll(1), OWN),
    ],
    ids=["clipped", "squared", "root", "weighted", "another row's"],
)
def test_td_errors_told_wrong_are_found(agent: str, mistells: Mistells, fails: str) -> None:
    assert fails in messages_of_failed(contract(agent, right, mistells), fails)


@pytest.mark.parametrize("agent", ACTIONS)
def test_the_value_of_another_rows_next_obs_is_found(agent: str) -> None:
    assert [*messages_of_failed(contract(agent, next_rows_obs), OWN, AFTER, GEOMETRIC)] == [OWN]


@pytest.mark.parametrize("agent", ACTIONS)
def test_an_agent_that_leaves_rewards_out_is_told_so(agent: str) -> None:
    said = messages_of_failed(contract(agent, no_rewards), LINEAR, GEOMETRIC, WEIGHTED)
    assert "do rewards not count" in said[LINEAR]
    assert "do rewards not count" in said[GEOMETRIC]
    assert "another reward makes no difference" in said[WEIGHTED]


@pytest.mark.parametrize(("agent", "scale"), [("dqn", 0.1), ("iqn", 20.0), ("sac", 20.0)])
def test_rewards_may_be_scaled(agent: str, scale: float) -> None:
    def scaled(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
        return {**batch, "reward": scale * batch["reward"]}, weights

    assert (
        messages_of_failed(contract(agent, scaled), LINEAR, UNWEIGHTED, OWN, GEOMETRIC, STATED)
        == {}
    )


@pytest.mark.parametrize("agent", ["dqn", "sac"])
def test_an_agent_that_tells_no_td_errors_passes(agent: str) -> None:
    assert failing(contract(agent, right, none)) == []


def test_what_an_agent_says_it_does_not_do_is_not_asked_of_it() -> None:
    def bandit(batch: Batch, weights: Weights) -> tuple[Batch, Weights]:
        return {**batch, "terminated": torch.ones_like(batch["terminated"])}, None

    said = contract("dqn", bandit)
    said.bootstraps = said.takes_weights = False
    assert failing(said) == []
    said = contract("dqn", one_discount)
    said.takes_n_steps = False
    assert failing(said) == []
    said = contract("dqn", squared_steps)
    said.plain_td_errors = False
    assert failing(said) == []
