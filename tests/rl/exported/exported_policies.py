"""Policies to export: every agent, on vectors, dictionaries and images."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns, Policy
from vedette_rl.envs.spaces import Spaces, observation_columns
from vedette_rl.exported import PolicyFile

VECTOR = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
PARTS = gym.spaces.Dict(
    {
        "speed": gym.spaces.Box(-1, 1, (2, 3), np.float32),
        "gear": gym.spaces.Discrete(5, start=1),
        "doors": gym.spaces.MultiBinary(3),
        "more": gym.spaces.Tuple([gym.spaces.MultiDiscrete([2, 3])]),
    }
)
IMAGE = gym.spaces.Box(0, 255, (48, 40, 2), np.uint8)
STACK = gym.spaces.Box(0, 255, (2, 48, 40, 3), np.uint8)
CAMERAS = gym.spaces.Dict({"front": IMAGE, "wrist": IMAGE, "joints": VECTOR})
FEW = gym.spaces.Discrete(3)
BOX = gym.spaces.Box(np.array([[-2, 0]], np.float32), np.array([[2, 10]], np.float32))

CASES: dict[str, tuple[dict[str, Any], Spaces]] = {
    "dqn": ({"name": "dqn", "hidden_sizes": [32, 16]}, Spaces(VECTOR, FEW)),
    "dqn-dueling": ({"name": "dqn", "hidden_sizes": [16], "dueling": True}, Spaces(VECTOR, FEW)),
    "dqn-parts": ({"name": "dqn", "hidden_sizes": [16]}, Spaces(PARTS, FEW)),
    "dqn-image": ({"name": "dqn", "cnn_hidden_sizes": [32]}, Spaces(IMAGE, FEW)),
    "dqn-image-dueling": (
        {"name": "dqn", "cnn_hidden_sizes": [32], "dueling": True},
        Spaces(IMAGE, FEW),
    ),
    "dqn-image-stack": ({"name": "dqn", "cnn_hidden_sizes": [32]}, Spaces(STACK, FEW)),
    "dqn-cameras": ({"name": "dqn", "hidden_sizes": [16]}, Spaces(CAMERAS, FEW)),
    "iqn": ({"name": "iqn", "hidden_sizes": [32, 16]}, Spaces(VECTOR, FEW)),
    "iqn-image": ({"name": "iqn", "cnn_hidden_sizes": [32]}, Spaces(IMAGE, FEW)),
    "sac": ({"name": "sac", "hidden_sizes": [32, 16]}, Spaces(VECTOR, BOX)),
    "sac-modern": (
        {
            "name": "sac",
            "hidden_sizes": [16, 16],
            "normalize_observations": True,
            "policy_architecture": "residual",
        },
        Spaces(PARTS, BOX),
    ),
    "appo": ({"name": "appo", "hidden_sizes": [32, 16]}, Spaces(VECTOR, FEW)),
    "appo-box": ({"name": "appo", "hidden_sizes": [32, 16]}, Spaces(VECTOR, BOX)),
    "appo-image": ({"name": "appo", "cnn_hidden_sizes": [32]}, Spaces(IMAGE, FEW)),
    "td3": ({"name": "td3", "hidden_sizes": [32, 16]}, Spaces(VECTOR, BOX)),
    "sac-cameras": (
        {"name": "sac", "hidden_sizes": [16], "shared_cnn": True},
        Spaces(CAMERAS, BOX),
    ),
    "sac-image": ({"name": "sac", "cnn_hidden_sizes": [32]}, Spaces(IMAGE, BOX)),
}


def policy_file(case: str) -> PolicyFile:
    """The file of a new agent of this case."""
    given, spaces = CASES[case]
    kind = agent_kind(given["name"])
    config = kind.config.model_validate(given)
    agent = kind.build_agent(config, spaces, device="cpu", seed=7)
    return PolicyFile(config, spaces, agent.model_info(), {"env": "Mine-v0", "return_mean": 9.5})


def original(found: PolicyFile) -> Policy:
    """The policy that an evaluator plays."""
    policy = agent_kind(found.config.name).build_policy(
        found.config, found.spaces, ranks=np.zeros(1), seed=0
    )
    policy.sync_model(found.model)
    return policy


def observations(spaces: Spaces, rows: int) -> Columns:
    """So many random observations, in columns."""
    spaces.observation.seed(1)
    columns: Columns = {}
    drawn = [spaces.observation.sample() for _ in range(rows)]
    for leaf in observation_columns(spaces.observation):
        found = []
        for whole in drawn:
            part: Any = whole
            for step in leaf.path:
                part = part[step]
            found.append(part)
        columns[leaf.name] = np.array(found, leaf.dtype)
    return columns
