"""Runs of an agent with drawn weights, as a learner would announce them to a client."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_protocol.messages import Run
from vedette_protocol.schema import Schema
from vedette_rl.agents.recurrent_policy import RecurrentPolicy
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns, RowColumn
from vedette_rl.core.columns import SEQUENCE_KEYS
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.layout import ObservationLayout
from vedette_rl.envs.spaces import Spaces, column_bounds, transition_dtype
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_stacks import frame_stack
from vedette_services.run.replay_layout import batch_schema

CARTPOLE = Spaces(gym.spaces.Box(-10, 10, (4,), np.float32), gym.spaces.Discrete(2))
BOX = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 5]), (2,), np.float32)
PENDULUM = Spaces(gym.spaces.Box(-8, 8, (3,), np.float32), BOX)
ROOM = Spaces(gym.spaces.Discrete(5, start=2), gym.spaces.MultiDiscrete([2, 3], start=[0, 4]))
FLAGS = Spaces(gym.spaces.MultiDiscrete([3, 4], start=[1, 0]), gym.spaces.Discrete(3, start=-1))
ATARI = Spaces(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), gym.spaces.Discrete(6), stack=4)
COLOURS = Spaces(gym.spaces.Box(0, 255, (2, 20, 24, 3), np.uint8), BOX, stack=2)
ROBOT = Spaces(
    gym.spaces.Dict(
        {
            "joints": gym.spaces.Box(-3, 3, (5,), np.float32),
            "left": gym.spaces.Box(0, 255, (36, 40, 3), np.uint8),
            "grip": gym.spaces.MultiBinary(2),
            "right": gym.spaces.Box(0, 255, (36, 40, 3), np.uint8),
            "turns": gym.spaces.Box(-9, 9, (2,), np.float64),
        }
    ),
    BOX,
)


def make_run(
    agent: str,
    spaces: Spaces,
    settings: dict[str, Any],
    *,
    weights: int = 0,
    columns: tuple[RowColumn, ...] = (),
) -> tuple[Run, ModelInfo, Any]:
    """A run of this agent, weights drawn by a seed for its network, and its policy in numpy.

    Args:
        columns: of rows, beside those of the agent and what names sequences where it learns from
            these.
    """
    kind = agent_kind(agent)
    config = kind.config.model_validate({"name": agent, **settings})
    build = kind.build_numpy_policy or kind.build_policy
    policy: Any = build(config, spaces, ranks=np.array([0.5]), seed=0)
    if own := kind.columns(config, spaces):  # of an agent that learns from sequences
        columns = (*columns, *own, *SEQUENCE_KEYS)
    if isinstance(policy, RecurrentPolicy):  # whose network it keeps for itself
        made = kind.build_agent(config, spaces, device="cpu", seed=0).model_info().arrays
        shapes = {name: array.shape for name, array in made.items()}
    else:
        shapes = policy.network.shapes
    rng = np.random.default_rng(weights)
    arrays = {
        name: np.float32(rng.normal(size=shape) * (0.1 if len(shape) == 1 else _gain(shape)))
        for name, shape in shapes.items()
    }
    model = ModelInfo(1, arrays)
    policy.sync_model(model)
    assert kind.describe is not None
    row, bounds = transition_dtype(spaces, columns), column_bounds(spaces, columns)
    run = Run(
        run_id="run-1",
        epoch=1,
        learner=11,
        schema=batch_schema(row, bounds, frame_stack(ReplayConfig(), spaces)),
        model=Schema.from_arrays(arrays),
        env={"reward_scale": 1.0, "reward_clip": 0.0},
        agent=config.model_dump(mode="json"),
        actors={},
        seed=1,
        batch_rows=8,
        batch_env_steps=64,
        policy=kind.describe(config, spaces) or {},
    )
    return run, model, policy


def _gain(shape: tuple[int, ...]) -> float:
    """Keeps the size of what passes a layer and its ReLU."""
    return float(np.sqrt(2.0 / np.prod(shape[1:])))


def sample_observations(spaces: Spaces, count: int) -> tuple[Columns, NDArray[np.uint8]]:
    """Observations by column, and as the client takes them: its parts one after another."""
    layout = ObservationLayout(spaces.observation)
    spaces.observation.seed(3)
    columns = layout.empty(count)
    for k in range(count):
        layout.write(columns, k, spaces.observation.sample())
    rows = [
        np.ascontiguousarray(column).reshape(count, -1).view(np.uint8)
        for column in columns.values()
    ]
    return columns, np.concatenate(rows, axis=1)
