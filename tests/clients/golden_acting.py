"""Writes vectors/: runs, models, observations and their greedy actions, for other languages.

python tests/clients/golden_acting.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from foreign_run import CARTPOLE, FLAGS, PENDULUM, ROOM, make_run, sample_observations
from fuzz_seeds import COLOURS, IMAGES, SMALL

from vedette_protocol.codec import encode
from vedette_protocol.model import pack_model
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
}
ROWS = 4


def write(name: str) -> None:
    """Write the files of one agent."""
    agent, raw, settings = GOLDEN[name]
    spaces = agent_spaces(raw.observation, raw.action, stack=raw.stack)  # as a learner announces
    columns, _ = sample_observations(spaces, ROWS)
    for weights in range(100):  # until they lead to different actions
        run, model, policy = make_run(agent, spaces, settings, weights=weights)
        actions = policy.act(columns, explore=False).reshape(ROWS, -1)
        if len(np.unique(actions, axis=0)) > 1:
            break
    for index, frame in enumerate(encode(run)):
        (VECTORS / f"{name}.run.{index}.bin").write_bytes(frame)
    (VECTORS / f"{name}.model.bin").write_bytes(pack_model(1, model.arrays, run.model))
    meaning = {
        "observations": {key: column.reshape(ROWS, -1).tolist() for key, column in columns.items()},
        "actions": actions.tolist(),
    }
    (VECTORS / f"{name}.json").write_text(json.dumps(meaning) + "\n")


if __name__ == "__main__":
    VECTORS.mkdir(exist_ok=True)
    for golden in GOLDEN:
        write(golden)
