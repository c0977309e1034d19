"""Agents are found by name, refuse what they cannot take, and load torch only to learn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import every_agent  # of tests/support
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces as s
from pydantic import ValidationError

from vedette_rl.agents.kind import AgentKind
from vedette_rl.agents.registry import BUILT_IN, agent_kind
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import (
    NoImageError,
    TooManyCategoriesError,
    UnknownAgentError,
    UnsupportedSpaceError,
)

LARGEST = np.finfo(np.float32).max
VECTOR = s.Box(-1, 1, (4,), np.float32)
IMAGE = s.Box(0, 255, (84, 84, 3), np.uint8)
BOX = s.Box(-1, 1, (2,), np.float32)


def test_every_agent_is_what_the_contract_says() -> None:
    for name, kind in BUILT_IN.items():
        assert isinstance(kind, AgentKind)
        assert kind.name == name == kind.config().name


def test_an_agent_of_ones_own_is_found_by_module_and_name() -> None:
    assert agent_kind("vedette_rl.agents.dqn.policy:KIND") is BUILT_IN["dqn"]


@pytest.mark.parametrize(
    "name",
    ["dqm", "", ":", "no_such_module:Agent", "vedette_rl.agents.registry:Nothing", "math:pi"],
)
def test_an_unknown_agent_is_refused_with_those_known(name: str) -> None:
    with pytest.raises(UnknownAgentError, match=f"known: {', '.join(BUILT_IN)}, or"):
        agent_kind(name)


@pytest.mark.parametrize(
    ("agent", "observation", "action", "said"),
    [
        ("dqn", VECTOR, BOX, "Discrete action"),
        ("iqn", VECTOR, BOX, "Discrete action"),
        ("dqn", VECTOR, s.MultiBinary(3), "MultiDiscrete action"),
        ("sac", VECTOR, s.MultiDiscrete([2, 3]), "continuous Box action"),
        ("sac", VECTOR, s.Discrete(2), "continuous Box action"),
        ("sac", VECTOR, s.Box(0, 5, (2,), np.int64), "continuous Box action"),
        ("sac", VECTOR, s.Box(-np.inf, np.inf, (2,), np.float32), "bounded Box .*TransformAction"),
        ("sac", VECTOR, s.Box(-LARGEST, LARGEST, (2,), np.float32), "bounded Box"),
        ("dqn", s.Text(5), s.Discrete(2), "observation spaces"),
        ("sac", s.Dict(a=VECTOR, b=s.Text(5)), BOX, "observation spaces"),
    ],
)
def test_spaces_an_agent_cannot_take_are_refused_in_one_line(
    agent: str, observation: gym.Space[Any], action: gym.Space[Any], said: str
) -> None:
    kind = agent_kind(agent)
    with pytest.raises(UnsupportedSpaceError, match=said) as refusal:
        kind.check(kind.config(), Spaces(observation, action))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("agent", "observation", "action", "said"),
    [
        (
            "dqn",
            s.Discrete(2**40),
            s.Discrete(2),
            r"'obs', Discrete\(.*\), they are 1,099,511,627,776",
        ),
        (
            "sac",
            s.Dict(a=IMAGE, b=s.MultiDiscrete([2**40, 3])),
            BOX,
            "'obs/b', .* 1,048,576 at most",
        ),
        ("appo", s.Dict(a=s.Discrete(2**19), b=s.Discrete(2**19 + 1)), BOX, "'obs/b'"),
        ("iqn", VECTOR, s.Discrete(2**40), "with actions, Discrete"),
        ("appo", VECTOR, s.MultiDiscrete([2**20] * 2000), "with actions, MultiDiscrete"),
    ],
)
def test_more_categories_than_a_network_has_numbers_for_are_refused(
    agent: str, observation: gym.Space[Any], action: gym.Space[Any], said: str
) -> None:
    """They were asked of the memory, terabytes of it."""
    kind = agent_kind(agent)
    with pytest.raises(TooManyCategoriesError, match=said) as refusal:
        kind.check(kind.config(), Spaces(observation, action))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("agent", "observation", "action"),
    [
        ("dqn", s.Discrete(2**20), s.Discrete(2**20)),
        ("dqn", VECTOR, s.Discrete(2)),
        ("dqn", IMAGE, s.Discrete(2)),
        ("iqn", s.Dict(a=VECTOR, b=s.Discrete(3)), s.Discrete(2)),
        ("sac", s.Tuple((VECTOR, s.MultiBinary(3))), BOX),
        ("sac", IMAGE, s.Box(-1, 1, (2,), np.float64)),
    ],
)
def test_spaces_an_agent_can_take_pass(
    agent: str, observation: gym.Space[Any], action: gym.Space[Any]
) -> None:
    kind = agent_kind(agent)
    kind.check(kind.config(), Spaces(observation, action))


def test_a_cnn_is_refused_for_what_is_no_image() -> None:
    kind = agent_kind("dqn")
    with pytest.raises(NoImageError, match="takes uint8 images of at least 8 pixels"):
        kind.check(kind.config(network="cnn"), Spaces(VECTOR, s.Discrete(2)))
    kind.check(kind.config(network="mlp"), Spaces(IMAGE, s.Discrete(2)))


@pytest.mark.parametrize(
    ("agent", "options", "key"),
    [
        ("dqn", {"lr": 1e-3}, "lr"),
        ("dqn", {"discount": 1.5}, "discount"),
        ("dqn", {"tau": 0.0}, "tau"),
        ("dqn", {"n_step": 0}, "n_step"),
        ("dqn", {"exploration": {"kind": "boltzmann"}}, "exploration.kind"),
        ("iqn", {"hidden_sizes": [64]}, "hidden_sizes"),
        ("sac", {"alpha": -1.0}, "alpha"),
        ("sac", {"log_std_min": 3.0}, "log_std_min"),
        ("sac", {"critics_in_target": 3}, "more than n_critics 2: set agent.n_critics=3"),
        ("sac", {"dropped_quantiles": 1}, "below n_quantiles 1: raise agent.n_quantiles"),
        (
            "td3",
            {"hidden_sizes": [64, 32], "critic_architecture": "residual"},
            r"equal hidden sizes, not \[64, 32\]",
        ),
        ("dqn", {"schedule": {"kind": "linear"}}, "schedule.total_opts 0 must be above"),
        ("sac", {"learning_rate": float("nan")}, "learning_rate"),
    ],
)
def test_an_impossible_setting_is_refused_by_name(
    agent: str, options: dict[str, Any], key: str
) -> None:
    with pytest.raises(ValidationError, match=key):
        agent_kind(agent).config.model_validate(options)


def test_a_configuration_survives_json() -> None:
    for kind in BUILT_IN.values():
        config = kind.config(batch_size=7)
        assert kind.config(**config.model_dump(mode="json")) == config


ACT_WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it fails
import numpy as np
from every_agent import spaces_for
from gymnasium import spaces
from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.core import ModelInfo

observation = spaces.Dict(a=spaces.Box(-1, 1, (4,), np.float32), b=spaces.Discrete(3))
obs = {"obs/a": np.zeros((2, 4), np.float32), "obs/b": np.array([0, 2])}
for name, kind in BUILT_IN.items():
    both = spaces_for(name, observation)
    policy = kind.build_policy(kind.config(), both, ranks=np.zeros(2), seed=0)
    arrays = {name: np.ones(shape, np.float32) for name, shape in policy.network.shapes.items()}
    policy.sync_model(ModelInfo(1, arrays))
    for explore in (True, False):
        assert len(policy.act(obs, explore=explore)) == 2
"""


def test_policies_on_vectors_act_without_torch() -> None:
    support = Path(every_agent.__file__).parent
    program = [sys.executable, "-c", ACT_WITHOUT_TORCH]
    subprocess.run(program, check=True, timeout=60, cwd=support)


@pytest.mark.parametrize(
    ("name", "batch_size", "usual"), [("dqn", 32, 16.0), ("iqn", 64, 32.0), ("sac", 256, 256.0)]
)
def test_an_agent_knows_how_often_it_draws_a_sample(
    name: str, batch_size: int, usual: float
) -> None:
    assert agent_kind(name).config(batch_size=batch_size).usual_samples_per_insert == usual
