"""Writes vectors/: runs, models, observations and their greedy actions, for other languages.

python tests/clients/golden_acting.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from foreign_run import CARTPOLE, FLAGS, PENDULUM, ROOM, make_run, sample_observations
from fuzz_seeds import COLOURS, IMAGES, MEMORY, SMALL
from numpy.typing import NDArray

from vedette_protocol.codec import encode
from vedette_protocol.model import pack_model
from vedette_rl.agents.recurrent_policy import RecurrentPolicy
from vedette_rl.core import Columns
from vedette_rl.envs.spaces import Spaces, agent_spaces

VECTORS = Path(__file__).parent / "vectors"
NORMAL: dict[str, Any] = {**SMALL, "normalize_observations": True}
GOLDEN: dict[str, tuple[str, Spaces, dict[str, Any]]] = {
    "dqn": ("dqn", CARTPOLE, SMALL),
    "dqn-dueling": ("dqn", CARTPOLE, {**NORMAL, "dueling": True}),
    "dqn-heads": ("dqn", ROOM, SMALL),
    "dqn-categories": ("dqn", FLAGS, SMALL),
    "iqn": ("iqn", CARTPOLE, {**SMALL, "n_cosines": 5, "n_action_quantiles": 3}),
    "sac-layer-norm": ("sac", PENDULUM, {**NORMAL, "policy_architecture": "layer_norm"}),
    "sac-images": ("sac", COLOURS, {**IMAGES, "convolutions": "small"}),
    "td3-residual": ("td3", PENDULUM, {**NORMAL, "policy_architecture": "residual"}),
    "dqn-memory": ("dqn", CARTPOLE, MEMORY),
    "sac-memory": ("sac", PENDULUM, {**MEMORY, "normalize_observations": True}),
    "appo": ("appo", ROOM, SMALL),
    "appo-box-memory": ("appo", PENDULUM, MEMORY),
}
ROWS = 4
BEGINS = [True, False, True, False]
"""Of agents with memory: the observations are those of one environment, one after another."""


def act(policy: Any, columns: Columns) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """The greedy actions ``(4, D)``, and of agents with memory what is remembered after each."""
    if not isinstance(policy, RecurrentPolicy):
        return policy.act(columns, explore=False).reshape(ROWS, -1), np.empty((ROWS, 0), np.float32)
    actions, memories = [], []
    for k, begins in enumerate(BEGINS):
        now = {name: column[k : k + 1] for name, column in columns.items()}
        actions.append(policy.act(now, explore=False, begins=np.array([begins])).reshape(-1))
        memories.append(policy.memory[0].copy())
    return np.array(actions), np.array(memories)


def write(name: str) -> None:
    """Write the files of one agent."""
    agent, raw, settings = GOLDEN[name]
    spaces = agent_spaces(raw.observation, raw.action, stack=raw.stack)  # as a learner announces
    columns, _ = sample_observations(spaces, ROWS)
    for weights in range(100):  # until they lead to different actions
        run, model, policy = make_run(agent, spaces, settings, weights=weights)
        actions, memories = act(policy, columns)
        if len(np.unique(actions, axis=0)) > 1:
            break
    for index, frame in enumerate(encode(run)):
        (VECTORS / f"{name}.run.{index}.bin").write_bytes(frame)
    (VECTORS / f"{name}.model.bin").write_bytes(pack_model(1, model.arrays, run.model))
    meaning = {
        "observations": {key: column.reshape(ROWS, -1).tolist() for key, column in columns.items()},
        "actions": actions.tolist(),
        **({"begins": BEGINS, "memory": memories.tolist()} if memories.size else {}),
    }
    (VECTORS / f"{name}.json").write_text(json.dumps(meaning) + "\n")


if __name__ == "__main__":
    VECTORS.mkdir(exist_ok=True)
    for golden in GOLDEN:
        write(golden)
