"""The contract fails the documentation's agent as soon as it has one of the common faults."""

import types
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.core import Agent
from vedette_rl.core.protocols import implements
from vedette_rl.envs import Spaces
from vedette_rl.testing import AgentContract

SOURCE = (Path(__file__).parents[2] / "docs" / "examples" / "custom_agent.py").read_text()
LOSS = "error**2 * (1 if weights is None else weights)"
FAULTS = {
    "weights ignored": (LOSS, "error**2"),
    "weights squared": (LOSS, "(error * (1 if weights is None else weights)) ** 2"),
    "one discount for all steps": ('self.discount ** batch["n_steps"]', "self.discount"),
    "bootstraps from obs": ("self.q_target(next_obs)", "self.q_target(obs)"),
}
FOUND_BY = {
    "weights ignored": {
        "test_a_weight_of_zero_leaves_a_sample_out",
        "test_a_weight_multiplies_a_sample_once",
    },
    "weights squared": {"test_a_weight_multiplies_a_sample_once"},
    "one discount for all steps": {"test_what_comes_after_is_discounted_by_each_step"},
    "bootstraps from obs": {
        "test_what_comes_after_is_seen_in_next_obs",
        "test_nothing_comes_after_a_terminated_row",
    },
}


def contract_of(source: str) -> AgentContract:
    module = types.ModuleType("custom_agent_variant")
    exec(compile(source, "custom_agent.py", "exec"), module.__dict__)

    class Contract(AgentContract):
        def make_spaces(self) -> Spaces:
            return Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))

        def make_agent(self, seed: int) -> Agent:
            kind = module.Linear
            agent = kind.build_agent(
                kind.config(name=kind.name), self.make_spaces(), device="cpu", seed=seed
            )
            assert implements(agent, Agent)
            return agent

    return Contract()


def failing(contract: AgentContract) -> set[str]:
    failed = set()
    for name in (name for name in dir(contract) if name.startswith("test_")):
        try:
            getattr(contract, name)()
        except AssertionError:
            failed.add(name)
    return failed


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_found(fault: str) -> None:
    was, becomes = FAULTS[fault]
    assert SOURCE.count(was) == 1
    assert failing(contract_of(SOURCE.replace(was, becomes))) == FOUND_BY[fault]


@pytest.mark.parametrize(
    ("was", "becomes", "test", "why"),
    [
        (
            "error = target - q",
            "error = target - q + 0.1 * torch.randn_like(q)",
            "test_a_saved_state_goes_on_as_if_nothing_had_happened",
            r"give it a torch\.Generator: model array '1\.weight' differs by up to",
        ),
        (
            '"target": self.target.get(self.target.data),',
            '"target": self.online.get(self.online.data),',
            "test_a_saved_state_goes_on_as_if_nothing_had_happened",
            r"after set_state it learns otherwise: the state lacks something .a target, .* differs",
        ),
        (
            "ModelInfo(self.opt_steps,",
            "ModelInfo(0,",
            "test_an_opt_is_counted_and_is_the_next_version",
            "the model info's version is 0, opt_steps is 1",
        ),
        (
            "error.detach().abs()",
            "error.detach()",
            "test_td_errors_are_magnitudes_of_each_sample",
            "a TD error is -.*, below 0",
        ),
    ],
)
def test_a_failing_contract_says_what_came(was: str, becomes: str, test: str, why: str) -> None:
    assert SOURCE.count(was) == 1
    with pytest.raises(AssertionError, match=why):
        getattr(contract_of(SOURCE.replace(was, becomes)), test)()
