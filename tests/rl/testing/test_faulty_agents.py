"""The contract fails what learns wrongly from a batch, of every built-in agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from vedette_rl.agents.registry import agent_type
from vedette_rl.core import Agent, OptResult
from vedette_rl.envs import Spaces
from vedette_rl.testing import AgentContract

Batch = Mapping[str, torch.Tensor]
Weights = torch.Tensor | None
Misreads = Callable[[Batch, Weights], tuple[Batch, Weights]]

OBS = gym.spaces.Box(-1, 1, (4,), np.float32)
ACTIONS: dict[str, gym.Space[Any]] = {
    "dqn": gym.spaces.Discrete(3),
    "iqn": gym.spaces.Discrete(3),
    "sac": gym.spaces.Box(-1, 1, (2,), np.float32),
}


class Misreading:
    """An agent that is right about batches that it does not read right."""

    def __init__(self, agent: Agent, misreads: Misreads, *, tells_td_errors: bool) -> None:
        self._agent, self._misreads, self._tells = agent, misreads, tells_td_errors

    def __getattr__(self, name: str) -> Any:  # all but opt is the agent's
        return getattr(self._agent, name)

    def opt(self, batch: Batch, weights: Weights = None, *, record: bool = False) -> OptResult:
        result = self._agent.opt(*self._misreads(batch, weights), record=record)
        return result if self._tells else OptResult(None, result.record)


def contract(name: str, misreads: Misreads, *, tells_td_errors: bool = True) -> AgentContract:
    class Contract(AgentContract):
        def make_spaces(self) -> Spaces:
            return Spaces(OBS, ACTIONS[name])

        def make_agent(self, seed: int) -> Any:
            kind = agent_type(name)
            config = kind.config(hidden_sizes=(16, 16))
            agent = kind.build_agent(config, self.make_spaces(), device="cpu", seed=seed)
            return Misreading(agent, misreads, tells_td_errors=tells_td_errors)

    return Contract()


def failing(contract: AgentContract) -> list[str]:
    """Names of the contract's tests that fail."""
    failed = []
    for name in (name for name in dir(contract) if name.startswith("test_")):
        try:
            getattr(contract, name)()
        except AssertionError:
            failed.append(name)
    return failed


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


WEIGHTED = "test_a_weight_of_zero_leaves_a_sample_out"
COPIED = "test_a_weight_multiplies_a_sample_once"
AFTER = "test_what_comes_after_is_seen_in_next_obs"
DISCOUNTED = "test_what_comes_after_is_discounted_by_each_step"


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
@pytest.mark.parametrize("tells_td_errors", [True, False])
def test_what_is_misread_is_found(
    agent: str, misreads: Misreads, fails: set[str], tells_td_errors: bool
) -> None:
    assert fails <= {*failing(contract(agent, misreads, tells_td_errors=tells_td_errors))}


@pytest.mark.parametrize("agent", ACTIONS)
def test_another_power_of_the_discount_is_found(agent: str) -> None:
    assert failing(contract(agent, squared_steps)) == ["test_every_further_step_discounts_alike"]


@pytest.mark.parametrize("agent", ACTIONS)
def test_an_agent_that_tells_no_td_errors_passes(agent: str) -> None:
    assert failing(contract(agent, right, tells_td_errors=False)) == []


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
