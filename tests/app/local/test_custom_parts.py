"""What agents and policies of the user's own return first is checked, and named as configured."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import config_of, trained  # beside this file

import vedette_rl.agents.dqn.policy as dqn
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.kind import AgentKind
from vedette_rl.core import Agent, OptResult, Policy
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import CustomPartError
from vedette_services.config import RunConfig, write_config
from vedette_services.errors import RefusedError
from vedette_services.run.finished import FinishedRun


class OwnConfig(DqnConfig):
    name: str = f"{__name__}:Sound"


class Changed:
    """An agent or a policy, one of whose methods returns something else."""

    def __init__(self, inner: Any, method: str, returned: Any) -> None:
        self.__dict__ |= {"inner": inner, "method": method, "returned": returned}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name != self.method:
            return found

        def call(*args: Any, **how: Any) -> Any:
            return self.returned(found(*args, **how))

        return call


class Uncounted(Changed):
    opt_steps = 0


class Forgetful(Changed):
    """An agent that counts from 0 after each `set_state`."""

    def set_state(self, state: Any) -> None:
        self.inner.set_state({**state, "opt_steps": 0})


def learning(kind: type[Changed], returned: Any, method: str = "opt") -> AgentKind[OwnConfig]:
    def build_agent(config: OwnConfig, spaces: Spaces, **how: Any) -> Agent:
        agent: Agent = kind(dqn.KIND.build_agent(config, spaces, **how), method, returned)
        return agent

    return replace(dqn.KIND, config=OwnConfig, build_agent=build_agent)  # type: ignore[return-value]


def acting(returned: Any) -> AgentKind[OwnConfig]:
    def build_policy(config: OwnConfig, spaces: Spaces, **how: Any) -> Policy:
        policy: Policy = Changed(dqn.KIND.build_policy(config, spaces, **how), "act", returned)
        return policy

    return replace(dqn.KIND, config=OwnConfig, build_policy=build_policy)  # type: ignore[return-value]


Sound = learning(Changed, lambda result: result)
Nothing = learning(Changed, lambda result: None)
TwoAxes = learning(Changed, lambda result: OptResult(result.td_errors[:, None]))
Standing = learning(Uncounted, lambda result: result)
Dictionary = learning(Changed, lambda info: dict(info.arrays), "model_info")
Tensors = learning(
    Changed,
    lambda info: replace(info, arrays={k: torch.from_numpy(v) for k, v in info.arrays.items()}),
    "model_info",
)
Lists = learning(
    Changed, lambda info: replace(info, arrays={"scale": [1.0], **info.arrays}), "model_info"
)
Recounted = learning(Forgetful, lambda result: result)
Sevens = acting(lambda action: np.full_like(action, 7))
Seven = acting(lambda action: 7)
Fractions = acting(lambda action: action + 0.5)
Listed = acting(lambda action: action.tolist())


def config_with(name: str, max_opts: int = 3) -> RunConfig:
    own = {"name": f"{__name__}:{name}", "batch_size": 8, "n_step": 1, "hidden_sizes": [8]}
    return config_of(agent=own, learner={"eval_interval": 0}, stop={"max_opts": max_opts})


def train(name: str, out: Path, max_opts: int = 3) -> Any:
    return trained(config_with(name, max_opts), out)[1]["exit_reason"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Nothing", "opt.. returned None; return an OptResult"),
        ("TwoAxes", r"opt.. returned td_errors of shape \(8, 1\); return one for each sample"),
        (
            "Standing",
            "opt.. returned with opt_steps at 0, which was 0 before; return an",
        ),
        ("Dictionary", r"model_info.. returned .*; return vedette_rl.core.ModelInfo\("),
        (
            "Tensors",
            r"model_info.. returned arrays in which '\S+' is torch.float32\[\d.*\]; return arrays "
            r"of numpy, tensor.detach\(\).cpu\(\).numpy\(\).copy\(\)",
        ),
        (
            "Lists",
            r"model_info.. returned arrays in which 'scale' is a list; return arrays of numpy, np",
        ),
    ],
)
def test_an_agent_that_does_not_keep_to_its_interface_is_named(
    tmp_path: Path, name: str, why: str
) -> None:
    with pytest.raises(CustomPartError, match=f"^agent.name is '{__name__}:{name}': its {why}"):
        train(name, tmp_path)


def test_an_agent_that_does_not_count_on_from_its_state_is_named(tmp_path: Path) -> None:
    assert train("Recounted", tmp_path) == "max_opts"
    said = r"its set_state.. returned with opt_steps at 0, and the state is of step 3; return an"
    with pytest.raises(CustomPartError, match=said):
        train("Recounted", tmp_path, 6)
    write_config(config_with("Recounted"), tmp_path / "config.toml")
    with pytest.raises(CustomPartError, match=said):
        FinishedRun.open(tmp_path, [__name__]).load_model("latest")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Sevens", r"int64\[4\] \[7 7 7 7\]; return an action of Discrete\(2\) for each env"),
        ("Seven", r"7; return an action of Discrete\(2\) for each environment, int64\[4\]"),
        ("Fractions", r"float64\[4\] \[.*\]; return an action of Discrete"),
    ],
)
def test_a_policy_whose_actions_are_none_is_named_and_ends_the_run(
    tmp_path: Path, name: str, why: str
) -> None:
    said = f"the rows that actors make: agent.name is '{__name__}:{name}': its act.. returned {why}"
    with pytest.raises(RefusedError, match=said):
        train(name, tmp_path)


@pytest.mark.parametrize("name", ["Sound", "Listed"])
def test_parts_that_keep_to_their_interface_train(tmp_path: Path, name: str) -> None:
    assert train(name, tmp_path) == "max_opts"
